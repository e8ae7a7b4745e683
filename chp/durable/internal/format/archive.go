package format

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
)

// Checkpoints and backups have the same format:
//
//	header   magic 8 | format 4 | identity 16 | index 8 | epoch 8 | sequence 8 | time 8 | checksum 4
//	piece    length 4 | index 8 | epoch 8 | header and records | checksum 4
//	trailer  0 4 | pieces 8 | records 8 | checksum 4
//
// Index, epoch and sequence in the header are those of the state at the start of the
// file; all pieces of a checkpoint have that index. The header and records of a piece
// are as in the log.
//
// A checksum is the CRC-32C of all bytes before it, except other checksums. So it also
// detects a piece that is missing, repeated or from another file.
//
// archiveHeader is the size of the header.
const archiveHeader = 8 + 4 + 16 + 8 + 8 + 8 + 8 + 4

// A form is one of the two kinds of files.
type form struct{ magic string }

// Both forms.
var (
	Checkpoint = &form{magic: "CHPCKPT\n"}
	Backup     = &form{magic: "CHPBACK\n"}
)

// pieceBytes is the size of a piece without its length, records and checksum.
const pieceBytes = 16 + EntryBytes

// ErrNotBackup means that a file does not begin like a backup; see durable.ErrNotBackup.
var ErrNotBackup = errors.New("not a backup")

// Info is the content of a header.
type Info struct {
	File     string
	Index    uint64 // of the last entry in the state
	Epoch    uint64
	Sequence uint64 // last sequence of the state
	Time     time.Time
	Bytes    int64
}

// An ArchiveWriter writes such a file. Its first error is permanent.
type ArchiveWriter struct {
	w       *bufio.Writer
	crc     uint32
	head    []byte
	entries uint64
	records uint64
	err     error
}

// Write writes the header of a file. It ignores File and Bytes of info.
func (m *form) Write(f io.Writer, identity [16]byte, info Info) *ArchiveWriter {
	a := &ArchiveWriter{w: bufio.NewWriterSize(f, 256<<10)}
	b := append(make([]byte, 0, archiveHeader), m.magic...)
	b = binary.BigEndian.AppendUint32(b, Version)
	b = append(b, identity[:]...)
	b = binary.BigEndian.AppendUint64(b, info.Index)
	b = binary.BigEndian.AppendUint64(b, info.Epoch)
	b = binary.BigEndian.AppendUint64(b, info.Sequence)
	b = binary.BigEndian.AppendUint64(b, uint64(info.Time.UnixNano()))
	a.write(b, nil)
	return a
}

// write writes a head and a body, followed by the checksum.
func (a *ArchiveWriter) write(head, body []byte) {
	a.crc = crc32.Update(a.crc, castagnoli, head)
	a.crc = crc32.Update(a.crc, castagnoli, body)
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], a.crc)
	for _, b := range [...][]byte{head, body, sum[:]} {
		if a.err == nil {
			_, a.err = a.w.Write(b)
		}
	}
}

// Append writes a piece.
func (a *ArchiveWriter) Append(e *commit.Entry) error {
	if len(e.Records) > commit.MaxEntryBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", commit.ErrTooLarge, len(e.Records), commit.MaxEntryBytes)
	}
	b := binary.BigEndian.AppendUint32(a.head[:0], uint32(pieceBytes+len(e.Records)))
	b = binary.BigEndian.AppendUint64(b, e.Index)
	b = binary.BigEndian.AppendUint64(b, e.Epoch)
	a.head = AppendEntry(b, e)
	a.write(a.head, e.Records)
	a.entries++
	a.records += uint64(e.Count)
	return a.err
}

// Finish writes the trailer and flushes the buffer to the file.
func (a *ArchiveWriter) Finish() error {
	b := binary.BigEndian.AppendUint32(a.head[:0], 0)
	b = binary.BigEndian.AppendUint64(b, a.entries)
	b = binary.BigEndian.AppendUint64(b, a.records)
	a.write(b, nil)
	if a.err == nil {
		a.err = a.w.Flush()
	}
	return a.err
}

// An Archive is such a file that is open for reading.
type Archive struct {
	f        *os.File
	Info     Info
	Identity [16]byte
	crc      uint32 // of the bytes read so far

	// Entries and records read so far.
	Entries uint64
	Records uint64
}

// Open opens a file of the form, and reads its header.
func (m *form) Open(path string) (_ *Archive, err error) {
	damaged := func(err error) error { return &commit.CorruptError{File: path, Reason: err} }
	f, err := os.Open(path)
	if err != nil {
		return nil, file.CannotRead(err)
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	var b [archiveHeader]byte
	if n, err := io.ReadFull(f, b[:]); err != nil {
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, file.CannotRead(err)
		}
		if n >= len(m.magic) && string(b[:len(m.magic)]) == m.magic {
			return nil, damaged(io.ErrUnexpectedEOF)
		}
	}
	if string(b[:8]) != m.magic {
		if m == Backup { // a user can name any file
			return nil, fmt.Errorf("%s is %w", path, ErrNotBackup)
		}
		return nil, damaged(errors.New("not a checkpoint"))
	}
	if err := checkHead(path, b[:], archiveHeader); err != nil {
		return nil, err
	}
	crc := crc32.Checksum(b[:archiveHeader-4], castagnoli)
	if binary.BigEndian.Uint32(b[archiveHeader-4:]) != crc {
		return nil, damaged(errChecksum)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	a := &Archive{f: f, crc: crc, Info: Info{
		File:     path,
		Index:    binary.BigEndian.Uint64(b[28:]),
		Epoch:    binary.BigEndian.Uint64(b[36:]),
		Sequence: binary.BigEndian.Uint64(b[44:]),
		Time:     time.Unix(0, int64(binary.BigEndian.Uint64(b[52:]))),
		Bytes:    st.Size(),
	}}
	copy(a.Identity[:], b[12:])
	return a, nil
}

// Close closes the file.
func (a *Archive) Close() error { return a.f.Close() }

// Read calls fn with all entries and verifies them. It returns errors of fn unchanged;
// damage is a *commit.CorruptError.
func (a *Archive) Read(fn func(commit.Entry) error) error {
	offset := int64(archiveHeader)
	damaged := func(err error) error {
		var system *os.PathError
		switch {
		case errors.As(err, &system):
			return file.CannotRead(err) // the disk's error
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
		}
		return &commit.CorruptError{File: a.Info.File, Offset: offset, Reason: err}
	}
	r := bufio.NewReaderSize(a.f, 256<<10)
	var buffer []byte
	for {
		var length [4]byte
		if _, err := io.ReadFull(r, length[:]); err != nil {
			return damaged(err)
		}
		n := int64(binary.BigEndian.Uint32(length[:]))
		last := n == 0
		if last {
			n = 16
		}
		if n > pieceBytes+commit.MaxEntryBytes || offset+4+n+4 > a.Info.Bytes {
			return damaged(fmt.Errorf("entry of %d bytes", n))
		}
		if int64(cap(buffer)) < n+4 {
			buffer = make([]byte, n+4)
		}
		buffer = buffer[:n+4]
		if _, err := io.ReadFull(r, buffer); err != nil {
			return damaged(err)
		}
		a.crc = crc32.Update(crc32.Update(a.crc, castagnoli, length[:]), castagnoli, buffer[:n])
		if binary.BigEndian.Uint32(buffer[n:]) != a.crc {
			return damaged(errChecksum)
		}
		if last {
			if binary.BigEndian.Uint64(buffer) != a.Entries || binary.BigEndian.Uint64(buffer[8:]) != a.Records {
				return damaged(errors.New("entries are missing"))
			}
			offset += 4 + n + 4
			if offset != a.Info.Bytes {
				return damaged(fmt.Errorf("%d bytes after the end", a.Info.Bytes-offset))
			}
			return nil
		}
		if n < pieceBytes {
			return damaged(errShort)
		}
		e, err := ParseEntry(binary.BigEndian.Uint64(buffer), binary.BigEndian.Uint64(buffer[8:]), buffer[16:n])
		if err != nil {
			return damaged(err)
		}
		if err := fn(e); err != nil {
			return Located(err, a.Info.File, offset, e.Index)
		}
		offset += 4 + n + 4
		a.Entries++
		a.Records += uint64(e.Count)
	}
}

// State is read for a checkpoint, whose entries all have its index.
func (a *Archive) State(fn func(commit.Entry) error) error {
	return a.Read(func(e commit.Entry) error {
		if e.Index != a.Info.Index {
			return &commit.CorruptError{File: a.Info.File, Reason: fmt.Errorf("entry %d in the state of entry %d", e.Index, a.Info.Index)}
		}
		return fn(e)
	})
}

// OpenCheckpoint opens a checkpoint of a log.
func OpenCheckpoint(path string, identity [16]byte) (*Archive, error) {
	a, err := Checkpoint.Open(path)
	if err == nil && a.Identity != identity {
		a.Close()
		return nil, &commit.CorruptError{File: path, Reason: errors.New("of another server's log")}
	}
	return a, err
}
