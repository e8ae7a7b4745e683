package submit

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"

	"clustermap/internal/kvmsg"
)

// uuidSecret is the key from which one client makes the UUIDs of its updates. They are of
// version 8 (RFC 9562 §5.8), whose contents are up to the implementation:
//
//	bytes 0-7   60 bits of a code around the version nibble
//	bytes 8-15  the variant (binary 10), 37 more bits of the code, and the low 25 bits of
//	            the update's number
//
// The code is AES of the number, under a key that never leaves the client. So no one can
// know the UUID of an update before it is sent, and the client recognizes its own updates and
// their numbers without a table. A uuidSecret is immutable and safe for concurrent use.
type uuidSecret struct{ block cipher.Block }

// Bits of bytes 0-7 and 8-15.
const (
	uuidVersion8    = 0x8000
	uuidVersionMask = 0xF000
	uuidVariant     = 1 << 63
	uuidNumberBits  = 25
	uuidNumberMask  = 1<<uuidNumberBits - 1
	uuidCodeMask    = 1<<62 - 1<<uuidNumberBits
)

func newUUIDSecret() uuidSecret {
	var key [16]byte
	rand.Read(key[:]) // never fails
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the size of the key is valid
	}
	return uuidSecret{block}
}

// uuidMaker makes and recognizes UUIDs. It is not safe for concurrent use.
type uuidMaker struct {
	uuidSecret

	// AES of consecutive numbers: made many at a time in counter mode, the blocks take a
	// fraction of the time.
	stream  cipher.Stream // positioned at next; nil at first
	next    uint64        // number after the last block
	blocks  [codesAhead * aes.BlockSize]byte
	in, out [aes.BlockSize]byte // scratch
}

// code returns both halves of the UUID of update n.
func (m *uuidMaker) code(n uint64) (high, low uint64) {
	if m.stream == nil {
		m.stream = cipher.NewCTR(m.block, make([]byte, aes.BlockSize))
	}
	if n-m.next < codesAhead {
		clear(m.blocks[:])
		m.stream.XORKeyStream(m.blocks[:], m.blocks[:])
		m.next += codesAhead
	}
	b := m.out[:]
	if i := n + codesAhead - m.next; i < codesAhead {
		b = m.blocks[i*aes.BlockSize:][:aes.BlockSize]
	} else { // out of order: it comes back late, or is another client's
		binary.BigEndian.PutUint64(m.in[8:], n)
		m.block.Encrypt(b, m.in[:])
	}
	high, low = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	return high&^uuidVersionMask | uuidVersion8, low&uuidCodeMask | uuidVariant | n&uuidNumberMask
}

// number returns the number of the client's own update in r, if it is one with a number
// from first to last.
func (m *uuidMaker) number(r kvmsg.Record, first, last uint64) (n uint64, own bool) {
	id := r.UUID()
	if len(id) != kvmsg.UUIDSize {
		return 0, false
	}
	for n = uuidNumber(id, first); n <= last; n += 1 << uuidNumberBits {
		high, low := m.code(n)
		if binary.BigEndian.Uint64(id) == high && binary.BigEndian.Uint64(id[8:]) == low {
			return n, true
		}
	}
	return 0, false
}

// uuidNumber returns the lowest number from first on that an update with this UUID can
// have.
func uuidNumber(id []byte, first uint64) uint64 {
	return first + (binary.BigEndian.Uint64(id[8:])-first)&uuidNumberMask
}
