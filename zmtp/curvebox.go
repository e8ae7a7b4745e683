package zmtp

import (
	"encoding/binary"
	"runtime"

	//lint:ignore SA1019 RFC 26 prescribes XSalsa20 and Poly1305, not what is recommended instead
	"golang.org/x/crypto/poly1305"
	//lint:ignore SA1019 the same
	"golang.org/x/crypto/salsa20/salsa"
)

// messageBox seals or opens the boxes of one direction of a connection. They are those of
// NaCl's crypto_box, with the key of the connection and a nonce of 16 bytes that identify
// the direction and 8 bytes that count.
//
// The boxes are those of nacl/secretbox too, made of the same ciphers of golang.org/x/crypto.
// They are put together here because that costs less: XSalsa20 derives its key from the
// first 16 bytes of the nonce, which all boxes have in common; flags and body need not be
// contiguous before; and the beginning and the end of a box take one call of Salsa20 each,
// of the size that it is quickest with.
type messageBox struct {
	key     secretKey // of Salsa20
	counter [16]byte  // its nonce of 8 bytes, and the number of a block
	once    secretKey // of Poly1305, for one box
	block   [4 * salsaBlock]byte
}

const (
	// salsaBlock is the size of a block of Salsa20, in bytes.
	salsaBlock = 64
	// boxKey is how many bytes of its stream are the key of Poly1305. The box is encrypted
	// with those behind them.
	boxKey = len(secretKey{})
)

// salsaStride returns how many bytes Salsa20 encrypts at a time: on amd64 four blocks, in
// little more time than one, but those that remain then one by one.
func salsaStride() int {
	if runtime.GOARCH == "amd64" {
		return 4 * salsaBlock
	}
	return salsaBlock
}

// init prepares b for boxes under key with the given prefix of 16 bytes.
func (b *messageBox) init(key *secretKey, prefix string) {
	var nonce [16]byte
	copy(nonce[:], prefix)
	salsa.HSalsa20(&b.key, &nonce, key, &salsa.Sigma)
}

// seal appends the box of flags and body with the given short nonce to dst,
// which must have enough capacity and must not overlap body.
func (b *messageBox) seal(dst []byte, nonce []byte, flags byte, body []byte) []byte {
	start := len(dst)
	dst = dst[:start+boxTag+1+len(body)]
	sealed := dst[start+boxTag:]
	b.block[boxKey] = flags
	n := copy(b.block[boxKey+1:salsaStride()], body)
	b.begin(nonce, 1+n)
	copy(sealed, b.block[boxKey:boxKey+1+n])
	b.follow(sealed[1+n:], body[n:])
	poly1305.Sum((*[boxTag]byte)(dst[start:]), sealed, &b.once)
	return dst
}

// open appends the flags and the body in the box sealed to dst, which must have
// enough capacity and must not overlap sealed. If the box does not open, open
// appends nothing and reports false.
func (b *messageBox) open(dst []byte, nonce, sealed []byte) (out []byte, ok bool) {
	tag, sealed := (*[boxTag]byte)(sealed), sealed[boxTag:]
	n := copy(b.block[boxKey:salsaStride()], sealed)
	b.begin(nonce, n)
	if !poly1305.Verify(tag, sealed, &b.once) {
		return dst, false
	}
	start := len(dst)
	dst = dst[:start+len(sealed)]
	opened := dst[start:]
	copy(opened, b.block[boxKey:boxKey+n])
	b.follow(opened[n:], sealed[n:])
	return dst, true
}

// begin starts the stream of the box with the given short nonce. It sets once, and encrypts
// or decrypts the first n bytes of the box, which stand in block behind the place of the key.
func (b *messageBox) begin(nonce []byte, n int) {
	copy(b.counter[:shortNonce], nonce)
	clear(b.block[:boxKey])
	b.xorBlock(0, boxKey+n)
	b.once = secretKey(b.block[:])
}

// follow encrypts or decrypts what comes after the first stride of the stream.
func (b *messageBox) follow(dst, src []byte) {
	at, rest := salsaStride(), len(src)%salsaStride()
	if rest <= salsaBlock {
		rest = 0
	}
	whole := len(src) - rest
	b.seek(at)
	salsa.XORKeyStream(dst[:whole], src[:whole], &b.counter, &b.key)
	if rest > 0 {
		copy(b.block[:], src[whole:])
		b.xorBlock(at+whole, rest)
		copy(dst[whole:], b.block[:rest])
	}
}

// xorBlock encrypts or decrypts the first n bytes of block, which are at an offset of the
// stream.
func (b *messageBox) xorBlock(at, n int) {
	if n > salsaBlock {
		n = salsaStride()
	}
	b.seek(at)
	salsa.XORKeyStream(b.block[:n], b.block[:n], &b.counter, &b.key)
}

// seek makes the stream go on at an offset, which must be that of a block.
func (b *messageBox) seek(at int) {
	binary.LittleEndian.PutUint64(b.counter[shortNonce:], uint64(at/salsaBlock))
}
