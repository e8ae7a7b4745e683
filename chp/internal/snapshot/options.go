package snapshot

import (
	"context"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/state"
	"clustermap/internal/hooks"
	"clustermap/internal/store"
	"clustermap/sockets"
)

// Source is the map of which snapshots are sent. Its methods may be called by several
// goroutines at the same time.
type Source interface {
	Sequence() int64 // of the last update
	Cut() state.Cut  // of the present map; the caller releases it

	// CutKey returns a cut of the present map, and where the record of one key is in it.
	CutKey(key string) (state.Cut, []store.Position)

	// Fresh reports whether a map with this sequence is empty because it is new.
	Fresh(sequence int64) bool

	// Progress returns the message that reports to a client which of its updates the
	// server has, or nil if the client does not number them.
	Progress(peer *sockets.Peer) []byte

	// Map returns the present map; LogBytes returns the size of its log.
	Map() *store.Map
	LogBytes() int
}

// Options configures a Server. All fields must be set.
type Options struct {
	// Memory bounds, in bytes, the parcels of all clients, and an eighth of it the lists
	// of records of subtrees.
	Memory int

	// Timeout bounds how long a client may read nothing.
	Timeout time.Duration

	// Send sends messages in wire form to a client, as hooks.SendWireTo does.
	Send func(ctx context.Context, peer *sockets.Peer, wire []byte, messages int, owner hooks.Owner) error
}

type counters struct {
	answered atomic.Uint64
	parcels  atomic.Uint64
	walks    atomic.Uint64
	sent     atomic.Int64
	encoded  atomic.Int64
}

// Stats are the counters of a Server.
type Stats struct {
	Answered     uint64 // requests
	Parcels      uint64 // encoded
	Walks        uint64 // to find the records of subtrees
	SentBytes    int64
	EncodedBytes int64
}

// Stats returns the counters.
func (n *Server) Stats() Stats {
	c := &n.counted
	return Stats{
		Answered: c.answered.Load(), Parcels: c.parcels.Load(), Walks: c.walks.Load(),
		SentBytes: c.sent.Load(), EncodedBytes: c.encoded.Load(),
	}
}

// Held is what snapshots hold at one moment.
type Held struct {
	Clients int // that are being sent snapshots
	Slow    int // those of them that have read nothing for windowFast
	Cuts    int
	Bytes   int // of parcels; see Options.Memory
	Lists   int // bytes of lists of records

	// Outlived is the number of bytes of the log that only cuts still need, Limit its
	// bound, beyond which clients are disconnected.
	Outlived, Limit int
}

// Held returns what snapshots hold now.
func (n *Server) Held() Held {
	cuts := n.useCuts()
	h := Held{Outlived: outlived(n.source.Map(), cuts), Limit: n.mayOutlive(cuts)}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dropCuts(cuts)
	h.Clients, h.Cuts, h.Bytes, h.Lists = len(n.joiners), len(n.pinned), n.small.used+n.large.used, n.listed
	for _, j := range n.joiners {
		if j.flying > 0 && time.Since(j.moved) > windowFast {
			h.Slow++
		}
	}
	return h
}
