package zmtp

import (
	"encoding/binary"
	"math/bits"
)

// poly1305 is the one-time authenticator of NaCl's boxes (RFC 8439, 2.5): the
// message's blocks of 16 octets, each with a further bit above, are the
// coefficients of a polynomial, taken at r modulo 2^130-5.
type poly1305 struct {
	h [3]uint64 // the sum so far, h[2] at most a few bits
	r [2]uint64
	s [2]uint64 // added in the end
}

// blockBit is where a whole block has its further bit, in the third word.
const blockBit = 1

func newPoly1305(key []byte) poly1305 {
	word := binary.LittleEndian.Uint64
	return poly1305{
		r: [2]uint64{word(key) & 0x0FFFFFFC0FFFFFFF, word(key[8:]) & 0x0FFFFFFC0FFFFFFC},
		s: [2]uint64{word(key[16:]), word(key[24:])},
	}
}

// blocks takes whole blocks.
func (p *poly1305) blocks(b []byte) {
	h0, h1, h2 := p.h[0], p.h[1], p.h[2]
	r0, r1 := p.r[0], p.r[1]
	// 2^128 r1 is 2^130 (r1/4), which is 5 (r1/4): r1 has two zero bits below.
	s1 := r1 + r1>>2
	for len(b) >= 16 {
		var c uint64
		h0, c = bits.Add64(h0, binary.LittleEndian.Uint64(b), 0)
		h1, c = bits.Add64(h1, binary.LittleEndian.Uint64(b[8:]), c)
		h2 += c + blockBit
		b = b[16:]
		h0, h1, h2 = multiply(h0, h1, h2, r0, r1, s1)
	}
	p.h = [3]uint64{h0, h1, h2}
}

// multiply returns h r, reduced to a few bits above 2^128.
func multiply(h0, h1, h2, r0, r1, s1 uint64) (x0, x1, x2 uint64) {
	hi0, lo0 := bits.Mul64(h0, r0)
	hi, lo := bits.Mul64(h1, s1)
	lo0, c := bits.Add64(lo0, lo, 0)
	hi0 += hi + c

	hi1, lo1 := bits.Mul64(h0, r1)
	hi, lo = bits.Mul64(h1, r0)
	lo1, c = bits.Add64(lo1, lo, 0)
	hi1 += hi + c
	lo1, c = bits.Add64(lo1, h2*s1, 0)
	hi1 += c

	x2 = h2 * r0
	x1, c = bits.Add64(lo1, hi0, 0)
	x2, _ = bits.Add64(x2, hi1, c)

	// What is above 2^130 comes back times five.
	above := x2&^3 + x2>>2
	x2 &= 3
	x0, c = bits.Add64(lo0, above, 0)
	x1, c = bits.Add64(x1, 0, c)
	return x0, x1, x2 + c
}

// sum takes the rest of the message, of any size, and writes the tag.
func (p *poly1305) sum(tag *[boxTag]byte, b []byte) {
	b = p.bulk(b)
	whole := len(b) &^ 15
	p.blocks(b[:whole])
	if b = b[whole:]; len(b) > 0 {
		var last [16]byte
		last[copy(last[:], b)] = 1
		h0, c := bits.Add64(p.h[0], binary.LittleEndian.Uint64(last[:]), 0)
		h1, c := bits.Add64(p.h[1], binary.LittleEndian.Uint64(last[8:]), c)
		h2 := p.h[2] + c
		p.h[0], p.h[1], p.h[2] = multiply(h0, h1, h2, p.r[0], p.r[1], p.r[1]+p.r[1]>>2)
	}
	// h modulo 2^130-5 is h, or h-(2^130-5) if that is not negative.
	h0, h1, h2 := p.h[0], p.h[1], p.h[2]
	t0, borrow := bits.Sub64(h0, 1<<64-5, 0)
	t1, borrow := bits.Sub64(h1, 1<<64-1, borrow)
	_, borrow = bits.Sub64(h2, 3, borrow)
	keep := -borrow // all ones if it was negative
	h0 = h0&keep | t0&^keep
	h1 = h1&keep | t1&^keep
	h0, c := bits.Add64(h0, p.s[0], 0)
	h1, _ = bits.Add64(h1, p.s[1], c)
	binary.LittleEndian.PutUint64(tag[:], h0)
	binary.LittleEndian.PutUint64(tag[8:], h1)
}
