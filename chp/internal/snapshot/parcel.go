package snapshot

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/list"
	"clustermap/internal/store"
)

// parcel is a number of whole messages of a chain in wire form, in a chunk of its own
// or in the log. Server.mu guards the fields that change.
type parcel struct {
	chain    *chain
	at, next place
	wire     []byte
	messages int
	chunk    *buf.Chunk           // holds the messages; nil if lent is set
	lent     *store.Segment       // the segment of the log that holds the messages
	budget   *budget              // of chunk
	resting  list.Element[parcel] // in budget.resting, while it is cached and has no user

	made   bool          // encoded; until then clients wait for done
	done   chan struct{} // closed when the parcel is made or encoding has failed
	uses   int           // by joiners and connections
	takers int           // clients of the chain that may still acquire it
	cached bool          // in chain.parcels
}

// budget bounds the bytes of parcels, over all clients. A claim waits for memory;
// claims are granted in order. Parcels that are only cached, and not being sent to any
// client, are dropped first. Server.mu guards it.
type budget struct {
	limit   int
	used    int               // bytes of all parcels and of granted claims
	idle    int               // bytes of resting
	resting list.List[parcel] // cached parcels without a user, oldest first
	claims  []*claim
}

// claim is a request for memory.
type claim struct {
	size    int
	granted chan struct{} // closed when done is set
	done    bool
}

// grant reserves memory, and reports whether there was enough. A parcel larger than the
// limit is granted when there is no other one.
func (n *Server) grant(b *budget, size int) bool {
	for b.used+size > b.limit && b.resting.Len() > 0 {
		n.uncache(b.resting.Front())
	}
	if b.used > 0 && b.used+size > b.limit {
		return false
	}
	b.used += size
	return true
}

// settle grants the claims for which there is memory.
func (n *Server) settle(b *budget) {
	for len(b.claims) > 0 && n.grant(b, b.claims[0].size) {
		b.claims[0].done = true
		close(b.claims[0].granted)
		b.claims = b.claims[1:]
	}
}

// allocate gives a parcel a chunk of at least size bytes. It waits as joiner.await
// does. A budget counts whole chunks.
func (n *Server) allocate(ctx context.Context, j *joiner, p *parcel, size int) error {
	size = buf.Size(size)
	b := &n.small
	if size > buf.Large {
		b = &n.large
	}
	n.mu.Lock()
	if len(b.claims) > 0 || !n.grant(b, size) {
		c := &claim{size: size, granted: make(chan struct{})}
		b.claims = append(b.claims, c)
		n.mu.Unlock()
		err := j.await(ctx, c.granted)
		n.mu.Lock()
		if err != nil {
			if c.done {
				b.used -= size
			} else {
				b.claims = slices.DeleteFunc(b.claims, func(other *claim) bool { return other == c })
			}
			n.settle(b)
			n.mu.Unlock()
			return err
		}
	}
	n.mu.Unlock()
	p.chunk, p.budget = buf.Get(size), b
	return nil
}

// use adds a use of a parcel. Server.mu must be held, as for free, uncache and
// reclaim.
func (n *Server) use(p *parcel) {
	p.uses++
	p.take()
}

// take takes a parcel that rests from the list.
func (p *parcel) take() {
	if p.budget != nil && p.resting.In(&p.budget.resting) {
		p.resting.Remove()
		p.budget.idle -= len(p.chunk.Data())
	}
}

// free ends one use.
func (n *Server) free(p *parcel) {
	if p.uses--; p.uses > 0 {
		return
	}
	if p.cached && p.chunk != nil {
		p.resting.Of = p
		p.budget.resting.PushBack(&p.resting)
		p.budget.idle += len(p.chunk.Data())
	}
	n.reclaim(p)
	if p.budget != nil {
		n.settle(p.budget)
	}
}

// uncache stops keeping a parcel for other clients.
func (n *Server) uncache(p *parcel) {
	if !p.cached {
		return
	}
	p.cached = false
	delete(p.chain.parcels, p.at)
	p.take()
	n.reclaim(p)
}

// reclaim releases the memory of a parcel that is neither used nor cached.
func (n *Server) reclaim(p *parcel) {
	if p.uses > 0 || p.cached {
		return
	}
	switch {
	case p.chunk != nil:
		p.budget.used -= len(p.chunk.Data())
		p.chunk.Release()
		p.chunk = nil
	case p.lent != nil:
		p.lent.Release()
		p.lent = nil
	}
	p.wire = nil
}

// loan is the use of a parcel by one client's connection (hooks.Owner).
type loan struct {
	joiner *joiner
	parcel *parcel
	size   int
	begun  time.Time
	refs   atomic.Int32
}

// Retain adds a holder. Safe for concurrent use.
func (l *loan) Retain() { l.refs.Add(1) }

// Release undoes one Retain. The last one means that the parcel was written or never
// will be. Safe for concurrent use.
func (l *loan) Release() {
	if l.refs.Add(-1) == 0 {
		l.joiner.landed(l)
	}
}
