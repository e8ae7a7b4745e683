package zmtp

import (
	"encoding/hex"
	"math/big"
	"slices"
	"testing"
)

// TestPoly1305Vector is the example of RFC 8439, 2.5.2.
func TestPoly1305Vector(t *testing.T) {
	t.Parallel()
	key, err := hex.DecodeString("85d6be7857556d337f4452fe42d506a80103808afb0db2fd4abff6af4149f51b")
	if err != nil {
		t.Fatal(err)
	}
	p := newPoly1305(key)
	var tag [boxTag]byte
	p.sum(&tag, []byte("Cryptographic Forum Research Group"))
	if got := hex.EncodeToString(tag[:]); got != "a8061dc1305136c6c22b8baf0c0127a9" {
		t.Error(got)
	}
}

// bigPoly1305 is Poly1305 from its definition.
func bigPoly1305(key, message []byte) [boxTag]byte {
	number := func(b []byte) *big.Int {
		b = slices.Clone(b)
		slices.Reverse(b)
		return new(big.Int).SetBytes(b)
	}
	clamp, _ := new(big.Int).SetString("0ffffffc0ffffffc0ffffffc0fffffff", 16)
	p := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 130), big.NewInt(5))
	r := new(big.Int).And(number(key[:16]), clamp)
	h := new(big.Int)
	for b := range slices.Chunk(message, 16) {
		h.Add(h, number(append(slices.Clone(b), 1)))
		h.Mod(h.Mul(h, r), p)
	}
	h.Add(h, number(key[16:]))
	var out [32]byte
	b := h.FillBytes(out[:])
	slices.Reverse(b)
	return [boxTag]byte(b[:boxTag])
}

// TestPoly1305 compares with the definition, on messages that make carries of
// every kind: all ones, small numbers, and any.
func TestPoly1305(t *testing.T) {
	t.Parallel()
	fillers := []func(b []byte){
		fillRandom,
		func(b []byte) { clear(b) },
		func(b []byte) {
			for i := range b {
				b[i] = 0xff
			}
		},
		func(b []byte) {
			clear(b)
			for i := 0; i < len(b); i += 16 {
				b[i] = byte(i/16) + 1
			}
		},
		func(b []byte) { // near 2^128 and 2^130-5
			for i := range b {
				b[i] = 0xff
			}
			for i := 0; i < len(b); i += 16 {
				b[i] = 0xfb + byte(i/16)%5
			}
		},
	}
	sizes := []int{1024, 4095, 4096, 9000}
	for n := range 70 {
		sizes = append(sizes, n, 1240+2*n)
	}
	for _, size := range sizes {
		message, key := make([]byte, size), make([]byte, 32)
		for i, fill := range fillers {
			for j, fillKey := range fillers[:3] {
				fill(message)
				fillKey(key)
				if j == 1 {
					key[0] = byte(size%5) + 1 // a small r
				}
				p := newPoly1305(key)
				var tag [boxTag]byte
				p.sum(&tag, message)
				if want := bigPoly1305(key, message); tag != want {
					t.Fatalf("%d octets, fillers %d and %d, key %x: %x, want %x", size, i, j, key, tag, want)
				}
			}
		}
	}
}
