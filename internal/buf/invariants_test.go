//go:build invariants

package buf

import (
	"bytes"
	"testing"
)

// TestReleasePoisons: with the build tag a chunk is overwritten when it is released.
func TestReleasePoisons(t *testing.T) {
	t.Parallel()
	c := Get(Largest + 1) // not pooled: no other test can take it and write to it
	d := c.Data()
	clear(d)
	c.Release()
	if i := bytes.IndexByte(d, 0); i >= 0 {
		t.Errorf("byte %d survived its release", i)
	}
}
