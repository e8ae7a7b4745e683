package segment

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"

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
			if s, ok := parseState(data); kind == kindState && ok && s.token == token {
				highest = max(highest, s.flushed)
			}
			offset = next
		}
	}
	return highest
}

// HasEntries reports whether a new segment has more than a head.
func HasEntries(path string) (bool, error) {
	b, err := readFrom(path, 0)
	for err == nil {
		kind, _, _, n := parseFrame(append(b, make([]byte, 8)...))
		if n == 0 {
			return lastNonzero(b) >= 0, nil
		}
		if kind == kindEntry {
			return true, nil
		}
		b = b[min(n, len(b)):]
	}
	return false, err
}
