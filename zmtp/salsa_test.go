package zmtp

import (
	"bytes"
	"testing"

	"golang.org/x/crypto/salsa20"
)

func TestKeystream(t *testing.T) {
	t.Parallel()
	if !fastBoxes {
		t.Skip("needs AVX2, and a build without the tag portable")
	}
	testKeystream(t, makeStream)
}

// testKeystream compares with x/crypto's stream.
func testKeystream(t *testing.T, keystream func(*[streamSize]byte, *[16]uint32)) {
	t.Helper()
	for range 20 {
		var key secretKey
		fillRandom(key[:])
		nonce := make([]byte, 8, 16)
		fillRandom(nonce)
		want := make([]byte, 5*streamSize)
		salsa20.XORKeyStream(want, want, nonce, &key)
		state := salsaState(&key, nonce[:16])
		var got [streamSize]byte
		for unit := 0; unit*streamSize < len(want); unit++ {
			state[8] = uint32(8 * unit)
			keystream(&got, &state)
			if !bytes.Equal(got[:], want[unit*streamSize:][:streamSize]) {
				t.Fatalf("key %x, nonce %x, unit %d:\n%x\n%x", key, nonce, unit, got, want[unit*streamSize:][:streamSize])
			}
		}
	}
}

func BenchmarkKeystream(b *testing.B) {
	if !fastBoxes {
		b.Skip("no AVX2")
	}
	var key secretKey
	state := salsaState(&key, make([]byte, 16))
	var out [streamSize]byte
	b.SetBytes(streamSize)
	for b.Loop() {
		makeStream(&out, &state)
	}
}
