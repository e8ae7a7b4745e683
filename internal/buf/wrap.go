package buf

import "sync"

// Lender is told when bytes that it lent are out of use.
type Lender interface{ Release() }

var wrappers = sync.Pool{New: func() any { return &Chunk{class: -1} }}

// Wrap returns a chunk, with one reference held by the caller, of bytes that
// are somebody else's and stay so: when the last reference goes, the lender is
// told, once.
func Wrap(data []byte, lender Lender) *Chunk {
	c := wrappers.Get().(*Chunk)
	c.data, c.lender = data, lender
	c.refs.Store(1)
	return c
}

// giveBack returns the bytes of a wrapping chunk.
func (c *Chunk) giveBack() {
	lender := c.lender
	c.data, c.lender = nil, nil
	wrappers.Put(c)
	lender.Release()
}
