package buf

import (
	"runtime"
	"testing"
)

// TestExactSizes: an exact chunk has less than a page beside the bytes asked for, and so has one
// that is larger than all classes.
func TestExactSizes(t *testing.T) {
	t.Parallel()
	for _, size := range []int{4<<20 + 1, 5 << 20, Largest + 1} {
		c := Get(size)
		if n := len(c.Data()); n < size || n >= size+page || n != Size(size) {
			t.Errorf("Get(%d) has %d bytes, and Size says %d", size, n, Size(size))
		}
		c.Release()
	}
	for _, size := range []int{1, page - 1, page, page + 1, 100_000, 1 << 20} {
		c := Exact(size)
		if n := len(c.Data()); n < size || n >= size+page {
			t.Errorf("Exact(%d) has %d bytes", size, n)
		}
		c.Release()
	}
}

// TestGive: bytes are given away by the only holder of an exact chunk, and of no other chunk.
func TestGive(t *testing.T) {
	t.Parallel()
	c := Exact(100_000)
	data := c.Data()
	c.Retain()
	if c.Give(len(data)) != nil {
		t.Error("bytes were given away that another holder uses")
	}
	c.Release()
	if c.Give(len(data)-page) != nil {
		t.Error("a message was given a page beside it")
	}
	if got := c.Give(len(data) - page + 1); len(got) != len(data) || &got[0] != &data[0] {
		t.Errorf("%d bytes, or others, were given away", len(got))
	}
	for _, c := range []*Chunk{Get(100_000), Get(5 << 20), Get(Largest + 1), Wrap(data, nil)} {
		if c.Give(100_000) != nil {
			t.Errorf("the bytes of a chunk of %d were given away", len(c.Data()))
		}
		c.Release()
	}
}

// TestGivenBytesComeBack: bytes that were given away and are not referred to any more are used
// again, and not as long as a part of them is referred to.
func TestGivenBytesComeBack(t *testing.T) {
	t.Parallel()
	back := make(chan *byte, 1)
	give := func() (part []byte) {
		c := Exact(123 * page)
		c.revived = func(p *byte) { c.revive(p); back <- p }
		return c.Give(122*page + 1)[page:][:1:1]
	}
	part := give()
	part[0] = 'x'
	for range 3 {
		runtime.GC()
	}
	select {
	case <-back:
		t.Fatal("bytes came back that are referred to")
	default:
	}
	if part[0] != 'x' {
		t.Error("the bytes have changed")
	}
	for part = nil; ; {
		runtime.GC()
		select {
		case <-back:
			return
		default:
		}
	}
}

// TestGivenIsBounded: no finalizer is set beyond the bound. Not beside other tests, which
// share it.
func TestGivenIsBounded(t *testing.T) {
	given.Add(mostGiven)
	defer given.Add(-mostGiven)
	before := given.Load()
	c := Exact(100_000)
	c.revived = func(*byte) { t.Error("it came back") }
	if c.Give(100_000) == nil || given.Load() > before { // it may fall: other tests have given bytes away
		t.Errorf("%d bytes more have a finalizer", given.Load()-before)
	}
}
