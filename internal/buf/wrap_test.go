package buf

import (
	"testing"

	"clustermap/internal/testenv"
)

type counter int

func (c *counter) Release() { *c++ }

func TestWrap(t *testing.T) {
	t.Parallel()
	data := []byte("lent")
	var released counter
	c := Wrap(data, &released)
	if &c.Data()[0] != &data[0] || len(c.Data()) != len(data) {
		t.Error("the bytes are not the lender's")
	}
	c.Retain()
	c.Release()
	if released != 0 {
		t.Error("released while a reference is held")
	}
	c.Release()
	if released != 1 || string(data) != "lent" {
		t.Errorf("released %d times, bytes %q", released, data)
	}
}

func TestAllocWrap(t *testing.T) {
	var released counter
	data := make([]byte, 8)
	if n := testenv.Allocs(0, 1000, func() { Wrap(data, &released).Release() }); n >= 1 {
		t.Errorf("%v allocations a Wrap and Release", n)
	}
}
