package chp

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
)

// uncounted marks, in the number of an update, that it is to a key outside of
// the client's subtrees: it will not come back, and has a number of another
// series.
const uncounted = 1 << 61

// uuidSecret is what the UUIDs of one client's updates are made with. They are of
// version 8 (RFC 9562 §5.8), whose contents are the implementation's own:
//
//	bytes 0-7   60 bits of a code around the version nibble
//	bytes 8-15  the variant (binary 10), 36 more bits of the code, one bit for an
//	            update that is not counted, and the low 25 bits of its number
//
// The code is AES of the number and of a hash of key and value, with keys and
// seeds that never leave the client. So nobody can know the UUID of an update
// before it is sent, nor make one for another key or value; and the client knows
// its own updates when they come back, and which of them they are, without a
// table. It is immutable and safe for concurrent use.
type uuidSecret struct {
	block       cipher.Block
	keys, value maphash.Seed
}

// Bits of bytes 8-15.
const (
	uuidNumberBits  = 25
	uuidNumberMask  = 1<<uuidNumberBits - 1
	uuidUncounted   = 1 << uuidNumberBits
	uuidCodeMask    = 1<<62 - 1<<(uuidNumberBits+1)
	uuidVariant     = 1 << 63
	uuidVersion8    = 0x8000 // in bytes 0-7
	uuidVersionMask = 0xF000
)

func newUUIDSecret() *uuidSecret {
	var key [16]byte
	rand.Read(key[:]) // never fails
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // it is for other sizes of the key
	}
	return &uuidSecret{block: block, keys: maphash.MakeSeed(), value: maphash.MakeSeed()}
}

// uuidMaker makes and recognises UUIDs. It is not safe for concurrent use.
type uuidMaker struct {
	*uuidSecret
	in, out [aes.BlockSize]byte // scratch
}

// code returns both halves of the UUID of update n, which may be marked
// uncounted.
func (m *uuidMaker) code(n uint64, key, value []byte) (high, low uint64) {
	hash := maphash.Bytes(m.keys, key) ^ bits.RotateLeft64(maphash.Bytes(m.value, value), 32)
	binary.BigEndian.PutUint64(m.in[:], n)
	binary.BigEndian.PutUint64(m.in[8:], hash)
	m.block.Encrypt(m.out[:], m.in[:])
	high = binary.BigEndian.Uint64(m.out[:])&^uuidVersionMask | uuidVersion8
	low = binary.BigEndian.Uint64(m.out[8:])&uuidCodeMask | uuidVariant | n&uuidNumberMask
	if n >= uncounted {
		low |= uuidUncounted
	}
	return high, low
}

// append appends the 16 bytes of the UUID of update n.
func (m *uuidMaker) append(dst []byte, n uint64, key, value []byte) []byte {
	high, low := m.code(n, key, value)
	dst = binary.BigEndian.AppendUint64(dst, high)
	return binary.BigEndian.AppendUint64(dst, low)
}

// number returns the number of the update that r, which has a UUID, brings back,
// if it is one of the client's own with a number from first to last. Key and
// value are those that were sent then.
func (m *uuidMaker) number(r record, first, last uint64) (n uint64, own bool) {
	id := r.uuid()
	for n = uuidNumber(id, first); n <= last && n != 0; n += 1 << uuidNumberBits {
		high, low := m.code(n, r.key(), r.value())
		if binary.BigEndian.Uint64(id) == high && binary.BigEndian.Uint64(id[8:]) == low {
			return n, true
		}
	}
	return 0, false
}

// uuidNumber returns the lowest number from first on that an update with this
// UUID can have, or 0 if it is not a counted update.
func uuidNumber(id []byte, first uint64) uint64 {
	low := binary.BigEndian.Uint64(id[8:])
	if low&uuidUncounted != 0 {
		return 0
	}
	return first + (low-first)&uuidNumberMask
}
