package zmtp

import (
	"bytes"
	"testing"

	"golang.org/x/crypto/salsa20"
)

func TestKeystream(t *testing.T) {
	t.Parallel()
	if !fastBoxes {
		t.Skip("no AVX2")
	}
	var key secretKey
	copy(key[:], pattern(32))
	for seed := range 20 {
		key[seed] ^= 0x5a
		nonce := pattern(24)[seed%16:][:8]
		want := make([]byte, 5*streamSize)
		salsa20.XORKeyStream(want, want, nonce, &key)
		state := salsaState(&key, append(bytes.Clone(nonce), make([]byte, 8)...))
		var got [streamSize]byte
		for unit := 0; unit*streamSize < len(want); unit++ {
			state[8] = uint32(8 * unit)
			keystream8(&got, &state)
			if !bytes.Equal(got[:], want[unit*streamSize:][:streamSize]) {
				t.Fatalf("seed %d, unit %d:\n%x\n%x", seed, unit, got, want[unit*streamSize:][:streamSize])
			}
		}
	}
}

func BenchmarkKeystream(b *testing.B) {
	var key secretKey
	state := salsaState(&key, make([]byte, 16))
	var out [streamSize]byte
	b.SetBytes(streamSize)
	for b.Loop() {
		keystream8(&out, &state)
	}
}
