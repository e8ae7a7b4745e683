package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
)

// Version is the version of all files, except for etcd's part of the segments. Every
// file has it right after its magic number, and so will those of later versions. It is
// raised when an older program could no longer read a file; such a program refuses it with
// a [*commit.FormatError], also if the rest of the file makes no sense to it.
const Version = 1

// CheckVersion returns an error if a file has a version that this program does not read.
func CheckVersion(path string, version uint32) error {
	switch {
	case version > Version:
		return &commit.FormatError{What: path, Unit: "format", Version: version, Newest: Version}
	case version == 0:
		return &commit.CorruptError{File: path, Reason: errors.New("format 0")}
	}
	return nil
}

// checkHead is CheckVersion for a file that begins with b. Its head is a magic number of 8 bytes, the
// format, and more; a checksum at its end makes it size bytes. If the checksum is right but for another
// format than the file has, the format is what was damaged.
func checkHead(path string, b []byte, size int) error {
	version := binary.BigEndian.Uint32(b[8:])
	if version > Version && len(b) >= size {
		head := binary.BigEndian.AppendUint32(slices.Clone(b[:8]), Version)
		head = append(head, b[12:size-4]...)
		if crc32.Checksum(head, castagnoli) == binary.BigEndian.Uint32(b[size-4:]) {
			return &commit.CorruptError{File: path, Reason: fmt.Errorf("format %d in a file of format %d", version, Version)}
		}
	}
	return CheckVersion(path, version)
}

// Meta is the metadata of a log.
type Meta struct {
	Format   uint32   // version of the files' format
	Identity [16]byte // of the log, chosen at random when it is created
	Epoch    uint64   // highest epoch that was stored
	// Token marks the records that contain the flushed index, so that a client that can
	// only write values cannot forge such a record.
	Token uint64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	metaMagic = "CHPMETA\n"
	MetaBytes = len(metaMagic) + 4 + 16 + 8 + 8 + 4
)

var errChecksum = errors.New("wrong checksum")

// Encode returns the content of the file:
//
//	magic 8 | format 4 | identity 16 | epoch 8 | token 8 | CRC-32C of all before 4
func (m *Meta) Encode() []byte {
	b := append(make([]byte, 0, MetaBytes), metaMagic...)
	b = binary.BigEndian.AppendUint32(b, m.Format)
	b = append(b, m.Identity[:]...)
	b = binary.BigEndian.AppendUint64(b, m.Epoch)
	b = binary.BigEndian.AppendUint64(b, m.Token)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// ReadMeta returns an error that is os.ErrNotExist if there are no metadata.
func ReadMeta(dir string) (Meta, error) {
	path := filepath.Join(dir, MetaName)
	b, err := os.ReadFile(path)
	if err != nil {
		return Meta{}, file.CannotRead(err)
	}
	damaged := func(err error) (Meta, error) {
		return Meta{}, &commit.CorruptError{File: path, Reason: err}
	}
	if len(b) < len(metaMagic)+4 || string(b[:len(metaMagic)]) != metaMagic {
		return damaged(errors.New("not the metadata of a log"))
	}
	m := Meta{Format: binary.BigEndian.Uint32(b[len(metaMagic):])}
	if err := checkHead(path, b, MetaBytes); err != nil {
		return m, err
	}
	if len(b) != MetaBytes {
		return damaged(fmt.Errorf("%d bytes, want %d", len(b), MetaBytes))
	}
	if binary.BigEndian.Uint32(b[MetaBytes-4:]) != crc32.Checksum(b[:MetaBytes-4], castagnoli) {
		return damaged(errChecksum)
	}
	copy(m.Identity[:], b[12:])
	m.Epoch = binary.BigEndian.Uint64(b[28:])
	m.Token = binary.BigEndian.Uint64(b[36:])
	return m, nil
}
