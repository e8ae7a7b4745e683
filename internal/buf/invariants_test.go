//go:build invariants

package buf

import "testing"

// TestReleasePoisons: with the build tag a chunk is overwritten when it is released.
func TestReleasePoisons(t *testing.T) {
	t.Parallel()
	c := Get(5 << 20) // not pooled: nobody else can take and write it
	d := c.Data()
	d[0] = 1
	c.Release()
	if d[0] == 1 {
		t.Error("bytes survived their release")
	}
}
