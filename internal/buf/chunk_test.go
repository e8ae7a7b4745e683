package buf

import (
	"testing"

	"clustermap/internal/testenv"
)

func TestGetSizes(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 512, 513, Small, Large, Large + 1, 4 << 20, 4<<20 + 1} {
		c := Get(size)
		if len(c.Data()) < size {
			t.Errorf("Get(%d) has %d bytes", size, len(c.Data()))
		}
		if !c.Unique() {
			t.Errorf("Get(%d) is shared from the start", size)
		}
		c.Retain()
		if c.Unique() {
			t.Errorf("a retained chunk counts as unique")
		}
		c.Release()
		c.Release()
	}
}

func TestAllocGetRelease(t *testing.T) {
	Get(Large).Release()
	if n := testenv.Allocs(0, 1000, func() { Get(Large).Release() }); n >= 1 {
		t.Errorf("%v allocations a Get and Release", n)
	}
}
