package zmtp

import (
	"crypto/subtle"
	"encoding/binary"

	"golang.org/x/crypto/nacl/secretbox"
)

// messageBox makes or opens the boxes of one direction of a connection. They
// are NaCl's; that all of them have the first 16 octets of the nonce in common
// saves half the work for a small one. On machines without AVX2 they are left to
// package secretbox.
type messageBox struct {
	fast   bool     // not left to secretbox
	nonce  [24]byte // prefix, and the short nonce of the box at work
	key    secretKey
	state  [16]uint32 // of Salsa20, with the key of the stream
	stream [streamSize]byte
	plain  []byte // flags and body of one frame, for secretbox
}

// keepPlain is the largest space for one frame that is kept for the next.
const keepPlain = 1 << 20

// init prepares b for boxes under key with the given prefix of 16 octets.
func (b *messageBox) init(key *secretKey, prefix string) {
	b.fast = fastBoxes
	b.key = *key
	copy(b.nonce[:], prefix)
	sub := hsalsa(key, b.nonce[:16])
	b.state = salsaState(&sub, make([]byte, 16))
	clear(sub[:])
}

// begin makes the first unit of the stream of the box with the given short
// nonce, and the authenticator from the unit's first 32 octets. The octets of the
// box begin behind them.
func (b *messageBox) begin(nonce []byte) poly1305 {
	b.state[6], b.state[7] = binary.LittleEndian.Uint32(nonce), binary.LittleEndian.Uint32(nonce[4:])
	b.state[8], b.state[9] = 0, 0
	makeStream(&b.stream, &b.state)
	return newPoly1305(b.stream[:streamStart])
}

// streamStart is where the stream for a box begins.
const streamStart = 32

// xor is dst = src xor the stream from at on, and what follows it.
func (b *messageBox) xor(dst, src []byte, at int) {
	n := subtle.XORBytes(dst, src, b.stream[at:])
	for n < len(src) {
		if b.state[8] += streamSize / 64; b.state[8] == 0 {
			b.state[9]++
		}
		makeStream(&b.stream, &b.state)
		n += subtle.XORBytes(dst[n:], src[n:], b.stream[:])
	}
}

// seal appends the box of flags and body with the given short nonce to dst,
// which has room for it and does not overlap body.
func (b *messageBox) seal(dst []byte, nonce []byte, flags byte, body []byte) []byte {
	if !b.fast {
		copy(b.nonce[len(prefixToServer):], nonce)
		b.plain = append(append(b.plain[:0], flags), body...)
		dst = secretbox.Seal(dst, b.plain, &b.nonce, &b.key)
		if cap(b.plain) > keepPlain {
			b.plain = nil
		}
		return dst
	}
	mac := b.begin(nonce)
	start := len(dst)
	dst = dst[:start+boxTag+1+len(body)]
	sealed := dst[start+boxTag:]
	sealed[0] = flags ^ b.stream[streamStart]
	b.xor(sealed[1:], body, streamStart+1)
	mac.sum((*[boxTag]byte)(dst[start:]), sealed)
	return dst
}

// open appends the flags and the body in the box sealed to dst, which has room
// for them and does not overlap it. ok is false, and nothing is appended, if
// the box does not open.
func (b *messageBox) open(dst []byte, nonce, sealed []byte) (out []byte, ok bool) {
	if !b.fast {
		copy(b.nonce[len(prefixToServer):], nonce)
		if out, ok = secretbox.Open(dst, sealed, &b.nonce, &b.key); !ok {
			return dst, false
		}
		return out, true
	}
	mac := b.begin(nonce)
	tag, sealed := sealed[:boxTag], sealed[boxTag:]
	var want [boxTag]byte
	mac.sum(&want, sealed)
	if subtle.ConstantTimeCompare(want[:], tag) != 1 {
		return dst, false
	}
	start := len(dst)
	dst = dst[:start+len(sealed)]
	b.xor(dst[start:], sealed, streamStart)
	return dst, true
}
