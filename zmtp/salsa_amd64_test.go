//go:build !portable

package zmtp

import "testing"

func TestKeystreamInstructions(t *testing.T) {
	t.Parallel()
	if !fastBoxes {
		t.Skip("no AVX2")
	}
	testKeystream(t, keystream8)
	if !fasterBoxes {
		t.Skip("no AVX-512")
	}
	testKeystream(t, keystream8VL)
}
