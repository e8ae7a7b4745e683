package store

import (
	"testing"
	"unsafe"
)

// The counters of two stripes never share a line of this machine's processor.
func TestStripesLieApart(t *testing.T) {
	t.Parallel()
	e := newRCU()
	apart := unsafe.Sizeof(e.stripes[0]) << e.spread
	if apart < 2*padLine || len(e.stripes)%(1<<e.spread) != 0 {
		t.Errorf("stripes lie %d bytes apart, %d of them", apart, len(e.stripes))
	}
	if uint(64-e.shift)+e.spread > 63 || 1<<(64-e.shift)<<e.spread != len(e.stripes) {
		t.Errorf("%d stripes for a shift of %d and a spread of %d", len(e.stripes), e.shift, e.spread)
	}
}
