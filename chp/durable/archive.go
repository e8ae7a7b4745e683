package durable

import (
	"bufio"
	"clustermap/chp/durable/internal/file"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"

	"clustermap/chp/commit"
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
const archiveHeader = 8 + 4 + 16 + 8 + 8 + 8 + 8 + 4

// A form is one of the two kinds of files.
type form struct{ magic string }

var (
	checkpointForm = &form{magic: "CHPCKPT\n"}
	backupForm     = &form{magic: "CHPBACK\n"}
)

// pieceBytes is the size of a piece without its length, records and checksum.
const pieceBytes = 16 + headerBytes

// An archiveWriter writes such a file. Its first error is permanent.
type archiveWriter struct {
	w       *bufio.Writer
	crc     uint32
	head    []byte
	entries uint64
	records uint64
	err     error
}

// write writes the header of a file. It ignores File and Bytes of info.
func (m *form) write(f io.Writer, identity [16]byte, info CheckpointInfo) *archiveWriter {
	a := &archiveWriter{w: bufio.NewWriterSize(f, 256<<10)}
	b := append(make([]byte, 0, archiveHeader), m.magic...)
	b = binary.BigEndian.AppendUint32(b, formatVersion)
	b = append(b, identity[:]...)
	b = binary.BigEndian.AppendUint64(b, info.Index)
	b = binary.BigEndian.AppendUint64(b, info.Epoch)
	b = binary.BigEndian.AppendUint64(b, info.Sequence)
	b = binary.BigEndian.AppendUint64(b, uint64(info.Time.UnixNano()))
	a.write(b, nil)
	return a
}

// write writes a head and a body, followed by the checksum.
func (a *archiveWriter) write(head, body []byte) {
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

func (a *archiveWriter) append(e *commit.Entry) error {
	if len(e.Records) > MaxEntryBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", commit.ErrTooLarge, len(e.Records), MaxEntryBytes)
	}
	b := binary.BigEndian.AppendUint32(a.head[:0], uint32(pieceBytes+len(e.Records)))
	b = binary.BigEndian.AppendUint64(b, e.Index)
	b = binary.BigEndian.AppendUint64(b, e.Epoch)
	a.head = appendHeader(b, e)
	a.write(a.head, e.Records)
	a.entries++
	a.records += uint64(e.Count)
	return a.err
}

// finish writes the trailer and flushes the buffer to the file.
func (a *archiveWriter) finish() error {
	b := binary.BigEndian.AppendUint32(a.head[:0], 0)
	b = binary.BigEndian.AppendUint64(b, a.entries)
	b = binary.BigEndian.AppendUint64(b, a.records)
	a.write(b, nil)
	if a.err == nil {
		a.err = a.w.Flush()
	}
	return a.err
}

// An archive is such a file that is open for reading.
type archive struct {
	file     *os.File
	info     CheckpointInfo
	identity [16]byte
	crc      uint32 // of the bytes read so far

	// Entries and records read so far.
	entries uint64
	records uint64
}

func (m *form) open(path string) (_ *archive, err error) {
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
		if m == backupForm { // a user can name any file
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
	a := &archive{file: f, crc: crc, info: CheckpointInfo{
		File:     path,
		Index:    binary.BigEndian.Uint64(b[28:]),
		Epoch:    binary.BigEndian.Uint64(b[36:]),
		Sequence: binary.BigEndian.Uint64(b[44:]),
		Time:     time.Unix(0, int64(binary.BigEndian.Uint64(b[52:]))),
		Bytes:    st.Size(),
	}}
	copy(a.identity[:], b[12:])
	return a, nil
}

// read calls fn with all entries and verifies them. It returns errors of fn unchanged;
// damage is a *commit.CorruptError.
func (a *archive) read(fn func(commit.Entry) error) error {
	offset := int64(archiveHeader)
	damaged := func(err error) error {
		var system *os.PathError
		switch {
		case errors.As(err, &system):
			return file.CannotRead(err) // the disk's error
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
		}
		return &commit.CorruptError{File: a.info.File, Offset: offset, Reason: err}
	}
	r := bufio.NewReaderSize(a.file, 256<<10)
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
		if n > pieceBytes+MaxEntryBytes || offset+4+n+4 > a.info.Bytes {
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
			if binary.BigEndian.Uint64(buffer) != a.entries || binary.BigEndian.Uint64(buffer[8:]) != a.records {
				return damaged(errors.New("entries are missing"))
			}
			offset += 4 + n + 4
			if offset != a.info.Bytes {
				return damaged(fmt.Errorf("%d bytes after the end", a.info.Bytes-offset))
			}
			return nil
		}
		e, err := parsePiece(buffer[:n])
		if err != nil {
			return damaged(err)
		}
		if err := fn(e); err != nil {
			return located(err, a.info.File, offset, e.Index)
		}
		offset += 4 + n + 4
		a.entries++
		a.records += uint64(e.Count)
	}
}

// state is read for a checkpoint, whose entries all have its index.
func (a *archive) state(fn func(commit.Entry) error) error {
	return a.read(func(e commit.Entry) error {
		if e.Index != a.info.Index {
			return &commit.CorruptError{File: a.info.File, Reason: fmt.Errorf("entry %d in the state of entry %d", e.Index, a.info.Index)}
		}
		return fn(e)
	})
}

func parsePiece(b []byte) (commit.Entry, error) {
	if len(b) < pieceBytes {
		return commit.Entry{}, errShort
	}
	return parseEntry(binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), b[16:])
}
