package segment

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"

	"clustermap/chp/durable/internal/file"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// dataEnd returns the offset after the last byte of a file that is not zero, or start
// if all bytes after start are zero.
func dataEnd(f io.ReaderAt, start int64) (int64, error) {
	buffer := make([]byte, 64<<10)
	end := start
	for offset := start; ; {
		n, err := f.ReadAt(buffer, offset)
		if i := lastNonzero(buffer[:n]); i >= 0 {
			end = offset + int64(i) + 1
		}
		offset += int64(n)
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return end, err
		}
	}
}

func lastNonzero(b []byte) int {
	for len(b) >= 8 && binary.NativeEndian.Uint64(b[len(b)-8:]) == 0 {
		b = b[:len(b)-8]
	}
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] != 0 {
			return i
		}
	}
	return -1
}

// readFrom returns the content of a file from an offset on, without the zeros at its
// end. Another process may cut its log back meanwhile.
func readFrom(path string, start int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, file.CannotRead(err)
	}
	defer f.Close()
	return contentFrom(f, start)
}

func contentFrom(f io.ReaderAt, start int64) ([]byte, error) {
	end, err := dataEnd(f, start)
	if err != nil {
		return nil, file.CannotRead(err)
	}
	b := make([]byte, end-start)
	n, err := f.ReadAt(b, start)
	if errors.Is(err, io.EOF) {
		err = nil // it has become shorter
	}
	return b[:n], file.CannotRead(err)
}

// vouched returns the highest index that a state record after damage reports as
// flushed. The damage breaks the chain of checksums, so a record counts if its checksum
// continues that of the record before it, wherever that is. b begins at the position of
// a record.
func vouched(b []byte, token uint64) (highest uint64) {
	b = append(b, make([]byte, 8)...) // readFrom may have removed padding of the last record
	for offset := 0; offset < len(b); offset += 8 {
		_, crc, _, n := parseFrame(b[offset:])
		for next := offset + n; n > 0 && next < len(b); next += n {
			var kind int64
			var sum uint32
			var data []byte
			kind, sum, data, n = parseFrame(b[next:])
			if n == 0 || crc32.Update(crc, castagnoli, data) != sum {
				break
			}
			crc = sum
			var s raftpb.HardState
			if kind == wal.StateType && s.Unmarshal(data) == nil && s.Vote == token {
				highest = max(highest, s.Commit)
			}
			offset = next
		}
	}
	return highest
}

// parseFrame parses a record as it is in a file: its length, then a walpb.Record with
// type, checksum and data. n is the total size, or 0 if there is no valid record.
func parseFrame(b []byte) (kind int64, crc uint32, data []byte, n int) {
	if len(b) < 16 {
		return 0, 0, nil, 0
	}
	field := binary.LittleEndian.Uint64(b)
	length, padding := field&(1<<56-1), 0
	if field>>63 != 0 {
		padding = int(field >> 56 & 7)
	}
	if length == 0 || length > uint64(len(b)-8-padding) || b[8] != 1<<3 {
		return 0, 0, nil, 0
	}
	n = 8 + int(length) + padding
	b = b[9 : 8+length]
	value, m := binary.Uvarint(b)
	if m <= 0 || value == 0 || value > uint64(wal.SnapshotType) {
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

// HasEntries reports whether a new segment has more than a head.
func HasEntries(path string) (bool, error) {
	b, err := readFrom(path, 0)
	for err == nil {
		kind, _, _, n := parseFrame(append(b, make([]byte, 8)...))
		if n == 0 {
			return lastNonzero(b) >= 0, nil
		}
		if kind == wal.EntryType {
			return true, nil
		}
		b = b[min(n, len(b)):]
	}
	return false, err
}
