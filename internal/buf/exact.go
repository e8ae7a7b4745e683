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

// exacts holds the unused exact chunks of equal sizes modulo its length, in pages.
var exacts [64]sync.Pool

// given is the size of the bytes that have a finalizer.
var given atomic.Int64

// Exact returns an exact chunk of at least size bytes and less than a page more, with one
// reference for the caller. Its bytes are not zeroed.
func Exact(size int) *Chunk {
	size = (size + page - 1) &^ (page - 1)
	c, _ := exactPool(size).Get().(*Chunk)
	if c == nil || len(c.data) != size {
		c = &Chunk{data: make([]byte, size), class: exact, size: size}
		c.revived = c.revive
	}
	c.refs.Store(1)
	return c
}

func exactPool(size int) *sync.Pool { return &exacts[size/page%len(exacts)] }

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
	exactPool(c.size).Put(c)
}
