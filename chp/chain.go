package chp

import (
	"context"
	"sync"
	"sync/atomic"

	"clustermap/internal/buf"
	"clustermap/sockets"
)

// chain is one encoded snapshot, as the parcels that it has come to so far. The
// pass that encodes it appends; each client that wants it reads along.
type chain struct {
	snapshots *snapshotter
	want      want

	filling *parcel // of the pass: not yet seen by the readers
	only    record  // of the pass: the record, if want is a single key that exists

	mu      sync.Mutex
	parcels []*parcel
	ended   bool
	changed chan struct{} // closed and replaced when parcels or ended changes
	readers map[*sockets.Peer]*chainReader
}

// chainReader is how far one client has come. Guarded by chain.mu.
type chainReader struct {
	sent int  // parcels
	done bool // everything is sent, or the client is gone
}

// parcel is some whole messages of a snapshot in wire form. It counts
// references: one for every client that has yet to be sent it, and one for
// every connection that has it queued. It is lent to the router
// (sockets.Owner).
type parcel struct {
	snapshots *snapshotter
	chunk     *buf.Chunk
	octets    []byte
	messages  int
	refs      atomic.Int32
}

func (p *parcel) Retain() { p.refs.Add(1) }

func (p *parcel) Release() {
	if p.refs.Add(-1) == 0 {
		p.snapshots.free(len(p.chunk.Data()))
		p.chunk.Release()
	}
}

func newChain(n *snapshotter, w want) *chain {
	return &chain{snapshots: n, want: w, changed: make(chan struct{}), readers: map[*sockets.Peer]*chainReader{}}
}

// append encodes one record.
func (c *chain) append(ctx context.Context, r record) {
	c.room(ctx, len(r)+agedGrowth)
	c.filling.octets = appendKVSYNC(c.filling.octets, r, c.want.full, &c.snapshots.server.sequencer.deadlines)
	c.filling.messages++
}

// end appends KTHXBAI and lets the readers have the rest.
func (c *chain) end(ctx context.Context, sequence int64) {
	c.room(ctx, 64+len(c.want.subtree))
	var props []byte
	if c.want.full && sequence == c.snapshots.server.sequencer.base {
		props = newMapProperties
	}
	c.filling.octets = appendKTHXBAI(c.filling.octets, sequence, props, c.want.subtree)
	c.filling.messages++
	c.ship(true)
	c.snapshots.answered.Add(1)
}

// room makes sure that size octets can be appended to the parcel being filled.
func (c *chain) room(ctx context.Context, size int) {
	if p := c.filling; p != nil {
		if len(p.octets)+size <= cap(p.octets) {
			return
		}
		c.ship(false)
	}
	chunk := buf.Get(max(size, buf.Large))
	if !c.snapshots.reserve(ctx, len(chunk.Data())) {
		// Some client does not take its snapshot while others wait for
		// memory: those furthest behind have to go.
		c.dropSlowest()
		c.snapshots.mu.Lock()
		c.snapshots.octets += len(chunk.Data())
		c.snapshots.mu.Unlock()
	}
	c.filling = &parcel{snapshots: c.snapshots, chunk: chunk, octets: chunk.Data()[:0]}
}

// ship shows the parcel being filled to the readers.
func (c *chain) ship(last bool) {
	p := c.filling
	c.filling = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := 0
	for _, r := range c.readers {
		if !r.done {
			waiting++
		}
	}
	p.refs.Store(int32(waiting))
	if waiting == 0 {
		p.Retain()
		p.Release()
	}
	c.parcels = append(c.parcels, p)
	c.ended = last
	close(c.changed)
	c.changed = make(chan struct{})
}

// dropSlowest disconnects the clients that have been sent the fewest parcels.
func (c *chain) dropSlowest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	least := len(c.parcels)
	for _, r := range c.readers {
		if !r.done {
			least = min(least, r.sent)
		}
	}
	for peer, r := range c.readers {
		if !r.done && r.sent == least {
			peer.Disconnect(sockets.ErrSlowPeer)
		}
	}
}

// sendTo sends the chain to one client, to its end or to the client's.
func (c *chain) sendTo(ctx context.Context, peer *sockets.Peer) {
	reader := c.readers[peer] // the map itself no longer changes
	for {
		c.mu.Lock()
		for reader.sent == len(c.parcels) && !c.ended {
			changed := c.changed
			c.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
				c.quit(reader)
				return
			}
			c.mu.Lock()
		}
		if reader.sent == len(c.parcels) {
			reader.done = true
			c.mu.Unlock()
			return
		}
		p := c.parcels[reader.sent]
		c.mu.Unlock()

		stalled, cancel := context.WithTimeout(ctx, c.snapshots.server.opts.SnapshotTimeout)
		err := c.snapshots.server.router.SendWire(stalled, peer, p.octets, p.messages, p)
		cancel()
		if err != nil {
			if stalled.Err() != nil && ctx.Err() == nil {
				peer.Disconnect(sockets.ErrSlowPeer)
			}
			c.quit(reader)
			return
		}
		c.mu.Lock()
		reader.sent++
		c.mu.Unlock()
		p.Release()
	}
}

// quit gives back the parcels that a client will not be sent.
func (c *chain) quit(reader *chainReader) {
	c.mu.Lock()
	rest := c.parcels[reader.sent:]
	reader.done = true
	c.mu.Unlock()
	for _, p := range rest {
		p.Release()
	}
}

// finished says whether a client has been sent all it will be sent.
func (c *chain) finished(peer *sockets.Peer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.readers[peer]
	return r == nil || r.done
}
