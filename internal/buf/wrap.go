package buf

import "sync"

// Lender is the owner of wrapped bytes. Release is called when the bytes are no longer
// used.
type Lender interface{ Release() }

var wrappers = sync.Pool{New: func() any { return &Chunk{class: unpooled} }}

// Wrap returns a chunk of bytes that belong to a lender, with one reference for the
// caller. When the last reference is released, it calls the lender's Release once. The
// lender is nil for bytes that are left to the garbage collector.
func Wrap(data []byte, lender Lender) *Chunk {
	c := wrappers.Get().(*Chunk)
	c.data, c.lender = data, lender
	c.refs.Store(1)
	return c
}

// giveBack calls the lender's Release and reuses the chunk.
func (c *Chunk) giveBack() {
	lender := c.lender
	c.data, c.lender = nil, nil
	wrappers.Put(c)
	if lender != nil {
		lender.Release()
	}
}
