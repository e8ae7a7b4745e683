package zmtp

import (
	"bytes"
	"testing"

	"golang.org/x/crypto/nacl/secretbox"
)

// boxSizes are the sizes at which boxes are compared: all up to two units and
// some of the stream, and some far above.
func boxSizes() (sizes []int) {
	for n := range 1500 {
		sizes = append(sizes, n)
	}
	return append(sizes, 2015, 2016, 2017, 4096, 65535, 65536, 65537, 1<<20+3)
}

// TestMessageBox holds that boxes are those of NaCl at every size.
func TestMessageBox(t *testing.T) {
	t.Parallel()
	var key secretKey
	copy(key[:], pattern(77)[45:])
	for _, fast := range []bool{fastBoxes, false} {
		var out, in messageBox
		out.init(&key, prefixToServer)
		in.init(&key, prefixToServer)
		out.fast, in.fast = fast, fast
		for i, size := range boxSizes() {
			plain := pattern(size + 1)
			plain[0] = byte(i)
			short := appendShortNonce(nil, uint64(i)*0x0102030405060708+1)
			want := secretbox.Seal(nil, plain, nonceOf(prefixToServer, short), &key)
			got := out.seal(append(make([]byte, 0, 3+len(want)), "dst"...), short, plain[0], plain[1:])
			if string(got[:3]) != "dst" || !bytes.Equal(got[3:], want) {
				t.Fatalf("fast %v, %d octets: another box", fast, size)
			}
			opened, ok := in.open(append(make([]byte, 0, 3+len(plain)), "dst"...), short, want)
			if !ok || string(opened[:3]) != "dst" || !bytes.Equal(opened[3:], plain) {
				t.Fatalf("fast %v, %d octets: does not open", fast, size)
			}
			at := i % len(want)
			want[at] ^= 1 << (i % 8)
			if opened, ok := in.open(append(make([]byte, 0, 3+len(plain)), "dst"...), short, want); ok || string(opened) != "dst" {
				t.Fatalf("fast %v, %d octets: opens though octet %d was changed", fast, size, at)
			}
		}
	}
}

// TestMessageBoxRandom compares boxes under random keys and nonces.
func TestMessageBoxRandom(t *testing.T) {
	t.Parallel()
	plain := make([]byte, 700)
	for range 300 {
		var key secretKey
		var short [shortNonce]byte
		fillRandom(key[:])
		fillRandom(short[:])
		fillRandom(plain)
		var b messageBox
		b.init(&key, prefixToClient)
		want := secretbox.Seal(nil, plain, nonceOf(prefixToClient, short[:]), &key)
		if got := b.seal(make([]byte, 0, len(want)), short[:], plain[0], plain[1:]); !bytes.Equal(got, want) {
			t.Fatalf("key %x, nonce %x", key, short)
		}
	}
}

// TestStreamCount holds that the count of blocks goes on in its second word.
func TestStreamCount(t *testing.T) {
	t.Parallel()
	if !fastBoxes {
		t.Skip("needs AVX2, and a build without the tag portable")
	}
	var b messageBox
	b.init(&secretKey{1}, prefixToServer)
	b.begin(make([]byte, shortNonce))
	b.state[8] = 1<<32 - 8
	out := make([]byte, streamSize+1)
	b.xor(out, make([]byte, len(out)), 0)
	if b.state[8] != 0 || b.state[9] != 1 {
		t.Error(b.state[8:10])
	}
}
