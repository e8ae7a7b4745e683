package snapshot

import (
	"sync/atomic"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/live"
	"clustermap/chp/internal/retain"
	"clustermap/sockets"
)

// Options configures a Server. All other fields must be set.
type Options struct {
	Live *live.Map // of which snapshots are sent
	// Fresh is the sequence with which the map is empty because it is new; 0 if it never was.
	Fresh int64
	// Progress returns the message that reports to a client which of its updates the
	// server has, or nil if the client does not number them.
	Progress func(peer *sockets.Peer) []byte
	// Since returns what was retained after a sequence: see order.Sequencer.Since. Retained bounds
	// that, in bytes.
	Since    func(id [ledger.MapIDSize]byte, after int64) retain.Past
	Retained int

	// Memory bounds, in bytes, the parcels of all clients, and an eighth of it the lists
	// of records of subtrees.
	Memory int

	// Timeout bounds how long a client may read nothing.
	Timeout time.Duration
	Router  *sockets.Router // with the clients' connections
}

// Counters count since the start.
type Counters struct {
	Answered     atomic.Uint64 // requests for a snapshot
	Took         Took          // from such a request until the last of it was queued
	Resumed      atomic.Uint64 // questions what came after a sequence that had an answer
	Walks        atomic.Uint64 // to find the records of subtrees
	SentBytes    atomic.Int64
	EncodedBytes atomic.Int64
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
	h := Held{Outlived: outlived(&n.opts.Live.Now().Store, cuts), Limit: n.mayOutlive(cuts)}
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
