package txn

import (
	"crypto/rand"
	"encoding/binary"

	"clustermap/internal/kvmsg"
)

// Mark makes the UUIDs of one client's requests. They are of version 8 (RFC 9562 §5.8), whose
// contents are up to the implementation:
//
//	bytes 0-1   "TX"
//	bytes 2-7   a code of the client, around the version nibble
//	bytes 8-15  the variant (binary 10), and the request's number, 62 bits
type Mark uint64

const (
	markMagic   = 'T'<<56 | 'X'<<48
	markVersion = 0x8000
	markMask    = 0xFFFF_0000_0000_F000 // of magic and version
	markVariant = 1 << 63
	numberMask  = 1<<62 - 1
)

// NewMark returns the mark of a client.
func NewMark() Mark {
	var code [8]byte
	rand.Read(code[:]) // never fails
	return Mark(binary.BigEndian.Uint64(code[:])&^markMask | markMagic | markVersion)
}

// UUID returns the UUID of the updates of a request.
func (m Mark) UUID(number uint64) (id [kvmsg.UUIDSize]byte) {
	binary.BigEndian.PutUint64(id[:], uint64(m))
	binary.BigEndian.PutUint64(id[8:], markVariant|number)
	return id
}

// NumberOf returns the number of the request that a record belongs to. ok is false if it
// belongs to none.
func NumberOf(r kvmsg.Record) (number uint64, ok bool) {
	id := r.UUID()
	if len(id) != kvmsg.UUIDSize || binary.BigEndian.Uint64(id)&markMask != markMagic|markVersion {
		return 0, false
	}
	low := binary.BigEndian.Uint64(id[8:])
	return low & numberMask, low&^numberMask == markVariant
}
