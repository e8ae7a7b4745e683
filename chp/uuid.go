package chp

import (
	"encoding/binary"
	"fmt"

	"github.com/google/uuid"
)

// uncounted marks, in the number of an update, that it is to a key outside of
// the client's subtrees: it will not come back, and has a number of another
// series.
const uncounted = 1 << 61

// uuidSource makes the UUIDs of one client's updates: version 8 of RFC 9562
// §5.8, whose contents are the implementation's own.
//
//	octets 0-7   60 random bits of the client around the version nibble
//	octets 8-15  the variant (binary 10) and the update's number, 62 bits
//
// So a client knows its own updates when they come back by one comparison of
// eight octets, and which of them it is without a table. It is immutable and
// safe for concurrent use.
type uuidSource struct {
	prefix uint64 // octets 0-7, big-endian
}

func newUUIDSource() (uuidSource, error) {
	random, err := uuid.NewRandom()
	if err != nil {
		return uuidSource{}, fmt.Errorf("chp: no randomness for UUIDs: %w", err)
	}
	return uuidSource{prefix: asVersion8(binary.BigEndian.Uint64(random[:8]))}, nil
}

// asVersion8 puts the version into the high nibble of octet 6.
func asVersion8(prefix uint64) uint64 { return prefix&^0xF000 | 0x8000 }

// append appends the 16 octets of the UUID of update n, which may be marked
// uncounted.
func (s uuidSource) append(dst []byte, n uint64) []byte {
	dst = binary.BigEndian.AppendUint64(dst, s.prefix)
	return binary.BigEndian.AppendUint64(dst, 1<<63|n&(1<<62-1))
}

// number returns the number of the update with this UUID of 16 octets, if it
// is one of the client's own and counted.
func (s uuidSource) number(id []byte) (n uint64, counted bool) {
	if binary.BigEndian.Uint64(id) != s.prefix {
		return 0, false
	}
	low := binary.BigEndian.Uint64(id[8:])
	return low & (uncounted - 1), low>>61 == 0b100
}
