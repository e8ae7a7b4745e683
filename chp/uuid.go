package chp

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"hash/maphash"
	"math/bits"

	"clustermap/internal/kvmsg"
)

// uncounted is set in the number of an update to a key outside of the client's
// subtrees: it will not come back, and has a number of a separate series.
const uncounted = 1 << 61

// uuidSecret has the keys from which one client makes the UUIDs of its updates. They
// are of version 8 (RFC 9562 §5.8), whose contents are up to the implementation:
//
//	bytes 0-7   60 bits of a code around the version nibble
//	bytes 8-15  the variant (binary 10), 36 more bits of the code, one bit for an
//	            update that is not counted, and the low 25 bits of its number
//
// The code is a message authentication code of Carter and Wegman's kind: AES of the
// number, which is used once, XOR a keyed hash of key and value. The keys and seeds
// never leave the client. So no one can know the UUID of an update before it is sent,
// or make one for another key or value, and the client recognizes its own updates and
// their numbers without a table. An update that is not counted is never recognized, so
// its code is AES of the number alone. A uuidSecret is immutable and safe for concurrent use.
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
		panic(err) // the size of the key is valid
	}
	return &uuidSecret{block: block, keys: maphash.MakeSeed(), value: maphash.MakeSeed()}
}

// uuidMaker makes and recognizes UUIDs. It is not safe for concurrent use.
type uuidMaker struct {
	*uuidSecret
	counted, others pads
	in, out         [aes.BlockSize]byte // scratch
}

// pads are the AES blocks of consecutive numbers. Made many at a time in counter mode,
// they take a fraction of the time.
type pads struct {
	stream cipher.Stream // positioned at next; nil at first
	next   uint64        // number after the last block
	blocks [padsAhead * aes.BlockSize]byte
}

const padsAhead = 32

// pad returns both halves of AES of n, the number of an update.
func (m *uuidMaker) pad(n uint64) (high, low uint64) {
	p := &m.counted
	if n >= uncounted {
		p = &m.others
	}
	i := n + padsAhead - p.next
	if i >= padsAhead {
		return m.padBeyond(p, n)
	}
	b := p.blocks[i*aes.BlockSize:][:aes.BlockSize]
	return binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
}

// padBeyond is pad for a number that is not in the blocks of p.
func (m *uuidMaker) padBeyond(p *pads, n uint64) (high, low uint64) {
	if p.stream == nil {
		first := n & uncounted
		binary.BigEndian.PutUint64(m.in[8:], first)
		p.stream, p.next = cipher.NewCTR(m.block, m.in[:]), first
	}
	if n-p.next < padsAhead {
		clear(p.blocks[:])
		p.stream.XORKeyStream(p.blocks[:], p.blocks[:])
		p.next += padsAhead
		return m.pad(n)
	}
	// Out of order: the update comes back late, or is another client's.
	binary.BigEndian.PutUint64(m.in[8:], n)
	m.block.Encrypt(m.out[:], m.in[:])
	return binary.BigEndian.Uint64(m.out[:]), binary.BigEndian.Uint64(m.out[8:])
}

// code returns both halves of the UUID of update n, which may include uncounted.
func (m *uuidMaker) code(n uint64, key, value []byte) (high, low uint64) {
	high, low = m.pad(n)
	if n >= uncounted {
		return high&^uuidVersionMask | uuidVersion8, low&uuidCodeMask | uuidVariant | uuidUncounted | n&uuidNumberMask
	}
	hash := maphash.Bytes(m.keys, key) ^ bits.RotateLeft64(maphash.Bytes(m.value, value), 32)
	high ^= hash
	low ^= bits.RotateLeft64(hash, 16) // the version takes the place of four bits of high
	return high&^uuidVersionMask | uuidVersion8, low&uuidCodeMask | uuidVariant | n&uuidNumberMask
}

// number returns the number of the client's own update in r, if it is one with a number
// from first to last. r must have a UUID.
func (m *uuidMaker) number(r kvmsg.Record, first, last uint64) (n uint64, own bool) {
	id := r.UUID()
	for n = uuidNumber(id, first); n <= last && n != 0; n += 1 << uuidNumberBits {
		high, low := m.code(n, r.Key(), r.Value())
		if binary.BigEndian.Uint64(id) == high && binary.BigEndian.Uint64(id[8:]) == low {
			return n, true
		}
	}
	return 0, false
}

// uuidNumber returns the lowest number from first on that an update with this UUID can
// have, or 0 if it is not counted.
func uuidNumber(id []byte, first uint64) uint64 {
	low := binary.BigEndian.Uint64(id[8:])
	if low&uuidUncounted != 0 {
		return 0
	}
	return first + (low-first)&uuidNumberMask
}
