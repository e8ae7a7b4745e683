// Package chptest has what the tests of chp and of the packages below it share: values that
// tell whose they are, and the size of the heap.
package chptest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"runtime"
)

// Heap returns the bytes of the heap that are in use.
func Heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// Value makes a value that tells whose it is: sequence of its update, checksum over
// that and the key, and size bytes of filling that repeat the last byte of the
// sequence.
func Value(key string, seq int64, size int) []byte {
	value := binary.BigEndian.AppendUint64(nil, uint64(seq))
	value = binary.BigEndian.AppendUint32(value, crc32.ChecksumIEEE(append(value, key...)))
	for range size {
		value = append(value, byte(seq))
	}
	return value
}

// CheckValue returns the sequence in a value of key that Value made, or an error if
// it is of another key or torn.
func CheckValue(key, value []byte) (seq int64, err error) {
	if len(value) < 12 {
		return 0, fmt.Errorf("value of %q has %d bytes", key, len(value))
	}
	seq = int64(binary.BigEndian.Uint64(value))
	if crc32.Update(crc32.ChecksumIEEE(value[:8]), crc32.IEEETable, key) != binary.BigEndian.Uint32(value[8:]) {
		return 0, fmt.Errorf("value %x is not of key %q", value, key)
	}
	for _, b := range value[12:] {
		if b != byte(seq) {
			return 0, fmt.Errorf("value #%d of %q is torn: %x", seq, key, value)
		}
	}
	return seq, nil
}
