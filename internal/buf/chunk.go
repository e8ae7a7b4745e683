// Package buf pools the buffers that connections read into.
//
// A [Chunk] is reference counted: the reader that fills it holds one
// reference, and every batch of messages in it holds one more. When the last
// reference is released, the bytes return to the pool; with the build tag
// "invariants" they are overwritten first. The bytes of an exact chunk can also be given
// away, and return to the pool when they are garbage.
package buf

import (
	"sync"
	"sync/atomic"

	"clustermap/internal/invariants"
)

// classes are the pooled sizes in ascending order. From Small each is about twice the
// previous one, so that a chunk of more than half of Small uses at least half of its
// memory.
var classes = [...]int{
	512, Small, 8 << 10, 16 << 10, 32 << 10, 64 << 10, Large, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20,
}

// The classes of other chunks.
const (
	unpooled = -1 - iota
	exact    // from Exact
	sized    // from Get, larger than all classes
)

var pools [len(classes)]sync.Pool

// Chunk is a reference-counted buffer. Retain and Release are safe for concurrent use;
// the holders must agree which of them may write to the bytes.
type Chunk struct {
	data  []byte
	refs  atomic.Int32
	class int8 // index into pools, or one of the classes above

	lender Lender // the owner of the bytes; see Wrap

	// Of an exact or sized chunk.
	size    int         // of data
	revived func(*byte) // revive, made once
}

// Get returns a chunk of at least size bytes, with one reference for the caller. Its
// bytes are not zeroed. Chunks larger than Largest are not pooled.
func Get(size int) *Chunk {
	for i, n := range classes {
		if size > n {
			continue
		}
		c, _ := pools[i].Get().(*Chunk)
		if c == nil {
			c = &Chunk{data: make([]byte, n), class: int8(i)}
		}
		c.refs.Store(1)
		return c
	}
	return ofSize(size, sized)
}

// Size returns the number of bytes of a chunk that Get returns for size.
func Size(size int) int {
	for _, n := range classes {
		if size <= n {
			return n
		}
	}
	return pages(size)
}

// Data returns all bytes of the chunk.
func (c *Chunk) Data() []byte { return c.data }

// Retain adds a reference.
func (c *Chunk) Retain() { c.refs.Add(1) }

// Unique reports whether the caller holds the only reference.
func (c *Chunk) Unique() bool { return c.refs.Load() == 1 }

// Release releases one reference; the caller must not use the bytes afterwards.
func (c *Chunk) Release() {
	n := c.refs.Add(-1)
	if n > 0 {
		return
	}
	invariants.Assert(n == 0, "chunk released more often than retained")
	if c.lender != nil {
		c.giveBack()
		return
	}
	invariants.Poison(c.data)
	switch {
	case c.class >= 0:
		pools[c.class].Put(c)
	case c.class < unpooled:
		c.pool()
	}
}
