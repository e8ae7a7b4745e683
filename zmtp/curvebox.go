package zmtp

import "golang.org/x/crypto/nacl/secretbox"

// messageBox seals or opens the boxes of one direction of a connection. They
// are those of NaCl's crypto_box, with the key of the connection and a nonce of
// 16 bytes that identify the direction and 8 bytes that count.
type messageBox struct {
	nonce [24]byte // prefix and current short nonce
	key   secretKey
	plain []byte // flags and body of one frame, which must be contiguous
}

// init prepares b for boxes under key with the given prefix of 16 bytes.
func (b *messageBox) init(key *secretKey, prefix string) {
	b.key = *key
	copy(b.nonce[:], prefix)
}

// seal appends the box of flags and body with the given short nonce to dst,
// which must have enough capacity and must not overlap body.
func (b *messageBox) seal(dst []byte, nonce []byte, flags byte, body []byte) []byte {
	copy(b.nonce[len(prefixToServer):], nonce)
	b.plain = append(append(b.plain[:0], flags), body...)
	dst = secretbox.Seal(dst, b.plain, &b.nonce, &b.key)
	if cap(b.plain) > keepPlain {
		b.plain = nil
	}
	return dst
}

// open appends the flags and the body in the box sealed to dst, which must have
// enough capacity and must not overlap sealed. If the box does not open, open
// appends nothing and reports false.
func (b *messageBox) open(dst []byte, nonce, sealed []byte) (out []byte, ok bool) {
	copy(b.nonce[len(prefixToServer):], nonce)
	if out, ok = secretbox.Open(dst, sealed, &b.nonce, &b.key); !ok {
		return dst, false
	}
	return out, true
}
