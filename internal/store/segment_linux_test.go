//go:build !portable

package store

import (
	"os"
	"testing"
)

// What a segment held goes back to the system at once: its pages read as zero.
func TestH25_ReleasedSegmentsGoBackToTheSystem(t *testing.T) {
	t.Parallel()
	b := allocate(1 << 20)
	for i := range b {
		b[i] = 1
	}
	release(b)
	left := 0
	for _, v := range b {
		left += int(v)
	}
	if left > 2*os.Getpagesize() {
		t.Errorf("%d bytes of %d are still there", left, len(b))
	}
}
