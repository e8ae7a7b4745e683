package buf

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"clustermap/internal/invariants"
)

// An exact chunk is for one message, which fills it. Its bytes can be given to the
// application, which keeps them for as long as it likes and says nothing when it needs them no
// more. The garbage collector knows: it calls a finalizer, which makes a chunk of them again.
// New memory for each large message would cost several times what it costs to read it: the
// pages are faulted in and zeroed, and a collection is due after a few messages.
//
// Finalizers are set for mostGiven bytes at a time, so this is also the most that a collection
// turns into chunks. Two collections later those that were not used are garbage, as in any
// sync.Pool.

// ofSizes holds the unused exact and sized chunks of equal sizes modulo its length, in pages.
var ofSizes [64]sync.Pool

// given is the size of the bytes that have a finalizer.
var given atomic.Int64

// Exact returns an exact chunk of at least size bytes and less than a page more, with one
// reference for the caller. Its bytes are not zeroed.
func Exact(size int) *Chunk { return ofSize(size, exact) }

// ofSize returns a chunk of at least size bytes and less than a page more.
func ofSize(size int, class int8) *Chunk {
	size = pages(size)
	c, _ := ofSizes[size/page%len(ofSizes)].Get().(*Chunk)
	if c == nil || len(c.data) != size {
		c = &Chunk{data: make([]byte, size), size: size}
		c.revived = c.revive
	}
	c.class = class
	c.refs.Store(1)
	return c
}

// pages returns the size of the pages that so many bytes occupy.
func pages(size int) int { return (size + page - 1) &^ (page - 1) }

// pool keeps a chunk that ofSize has made for use again, unless it is too large.
func (c *Chunk) pool() {
	if c.size <= Largest {
		ofSizes[c.size/page%len(ofSizes)].Put(c)
	}
}

// Give returns the bytes of an exact chunk to which the caller has the only reference, which
// it releases: they are the garbage collector's then. Of other chunks, and of one of which
// a message of the given size leaves a page unused, which it would keep, Give returns
// nil, and does nothing.
func (c *Chunk) Give(size int) []byte {
	if c.class != exact || c.size-size >= page || !c.Unique() {
		return nil
	}
	data := c.data
	c.data = nil
	if size := int64(c.size); given.Add(size) <= mostGiven {
		runtime.SetFinalizer(&data[0], c.revived)
	} else {
		given.Add(-size)
	}
	return data
}

// revive makes p, the bytes that were given away and that nothing refers to any more, the
// chunk's again. A finalizer calls it.
func (c *Chunk) revive(p *byte) {
	given.Add(-int64(c.size))
	c.data = unsafe.Slice(p, c.size)
	invariants.Poison(c.data)
	c.pool()
}
