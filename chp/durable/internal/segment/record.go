package segment

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// The kinds of records, as etcd numbers them.
const (
	kindMetadata = 1 + iota
	kindEntry
	kindState
	kindChecksum
	kindSnapshot
)

// record is a record of a segment.
type record struct {
	kind int64
	crc  uint32 // of the chain up to it
	data []byte
}

// decoder reads the records of a segment.
type decoder struct {
	r      *bufio.Reader
	size   int64  // of the file
	offset int64  // after the last record that was read
	crc    uint32 // of the chain up to there; the head of a segment sets it
	buffer []byte
}

func newDecoder(r io.Reader, size int64) *decoder {
	return &decoder{r: bufio.NewReaderSize(r, 64<<10), size: size}
}

var (
	errShort    = errors.New("a record ends too early")
	errRecord   = errors.New("not a record")
	errChecksum = errors.New("a record does not have its checksum")
)

// next returns the next record, whose data are valid until the next call. The error is io.EOF at the
// end of the file, or of what was written to it.
func (d *decoder) next() (r record, err error) {
	d.buffer = append(d.buffer[:0], make([]byte, 8)...)
	switch _, err := io.ReadFull(d.r, d.buffer); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return r, errShort
	case err != nil:
		return r, err
	}
	if binary.LittleEndian.Uint64(d.buffer) == 0 {
		return r, io.EOF
	}
	length, padding := frameSize(d.buffer)
	if length > uint64(max(d.size-d.offset-8-int64(padding), 0)) {
		return r, errShort // so no more is allocated than the file has
	}
	n := int(length) + padding
	d.buffer = append(d.buffer, make([]byte, n)...)
	if _, err := io.ReadFull(d.r, d.buffer[8:]); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errShort
		}
		return r, err
	}
	r.kind, r.crc, r.data, n = parseFrame(d.buffer)
	if n == 0 {
		return r, errRecord
	}
	if r.kind != kindChecksum {
		crc := crc32.Update(d.crc, castagnoli, r.data)
		if crc != r.crc {
			return r, errChecksum
		}
		d.crc = crc
	}
	d.offset += int64(n)
	return r, nil
}

// frameSize returns the lengths of a record and of the padding behind it, which the first 8 bytes of
// a frame have.
func frameSize(b []byte) (length uint64, padding int) {
	field := binary.LittleEndian.Uint64(b)
	if field>>63 != 0 {
		padding = int(field >> 56 & 7)
	}
	return field & (1<<56 - 1), padding
}

// parseFrame parses a record as it is in a file: its length, then a walpb.Record with
// type, checksum and data. n is the total size, or 0 if there is no valid record.
func parseFrame(b []byte) (kind int64, crc uint32, data []byte, n int) {
	if len(b) < 16 {
		return 0, 0, nil, 0
	}
	length, padding := frameSize(b)
	if length == 0 || length > uint64(len(b)-8-padding) || b[8] != 1<<3 {
		return 0, 0, nil, 0
	}
	n = 8 + int(length) + padding
	b = b[9 : 8+length]
	value, m := binary.Uvarint(b)
	if m <= 0 || value == 0 || value > kindSnapshot {
		return 0, 0, nil, 0
	}
	kind, b = int64(value), b[m:]
	if len(b) == 0 || b[0] != 2<<3 {
		return 0, 0, nil, 0
	}
	value, m = binary.Uvarint(b[1:])
	if m <= 0 || value > 1<<32-1 {
		return 0, 0, nil, 0
	}
	crc, b = uint32(value), b[1+m:]
	if len(b) > 0 {
		if b[0] != 3<<3|2 {
			return 0, 0, nil, 0
		}
		value, m = binary.Uvarint(b[1:])
		if m <= 0 || value != uint64(len(b)-1-m) {
			return 0, 0, nil, 0
		}
		data = b[1+m:]
	}
	return kind, crc, data, n
}

// state is what a state record says: raftpb.HardState.
type state struct {
	epoch   uint64 // Term
	token   uint64 // Vote: of the log
	flushed uint64 // Commit: the index up to which all entries are on the disk
}

func (s state) append(b []byte) []byte {
	b = binary.AppendUvarint(append(b, 1<<3), s.epoch)
	b = binary.AppendUvarint(append(b, 2<<3), s.token)
	return binary.AppendUvarint(append(b, 3<<3), s.flushed)
}

func parseState(b []byte) (s state, ok bool) {
	f := fields{b, true}
	s = state{f.number(1), f.number(2), f.number(3)}
	return s, f.ok && len(f.rest) == 0
}

// noSnapshot is an empty walpb.Snapshot, which etcd writes behind the head of a log.
var noSnapshot = []byte{1 << 3, 0, 2 << 3, 0}

// normalEntry is raftpb.EntryNormal.
const normalEntry = 0

// appendEntryHead appends what comes before the data of a raftpb.Entry.
func appendEntryHead(b []byte, epoch, index uint64, size int) []byte {
	b = binary.AppendUvarint(append(b, 1<<3, normalEntry, 2<<3), epoch)
	b = binary.AppendUvarint(append(b, 3<<3), index)
	return binary.AppendUvarint(append(b, 4<<3|2), uint64(size))
}

func parseEntry(b []byte) (epoch, index uint64, data []byte, ok bool) {
	f := fields{b, true}
	kind := f.number(1)
	epoch, index = f.number(2), f.number(3)
	data = f.bytes(4)
	return epoch, index, data, f.ok && kind == normalEntry && len(f.rest) == 0
}

// fields reads the fields of a protocol buffer message that has all of them, in order.
type fields struct {
	rest []byte
	ok   bool
}

func (f *fields) field(tag byte) (value uint64) {
	if f.ok = f.ok && len(f.rest) > 0 && f.rest[0] == tag; !f.ok {
		return 0
	}
	value, n := binary.Uvarint(f.rest[1:])
	if f.ok = n > 0; f.ok {
		f.rest = f.rest[1+n:]
	}
	return value
}

func (f *fields) number(number byte) uint64 { return f.field(number << 3) }

func (f *fields) bytes(number byte) (b []byte) {
	n := f.field(number<<3 | 2)
	if f.ok = f.ok && n <= uint64(len(f.rest)); f.ok {
		b, f.rest = f.rest[:n:n], f.rest[n:]
	}
	return b
}
