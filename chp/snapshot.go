package chp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// snapshotter answers snapshot requests.
//
// All requests that are waiting when it begins are answered in one pass over
// one cut of the map, so it does not matter how many clients come at once, as
// all of them do after a failover. Each distinct want is encoded once, as a
// chain of parcels, and each client has a goroutine that sends it the chain at
// the client's own pace. Updates go on meanwhile: the pass reads frozen tables
// and pinned segments.
//
// Memory is bounded: a pass encodes no further than ServerOptions.SnapshotMemory
// ahead of what was sent, and a client that takes nothing for SnapshotTimeout,
// or is the slowest when a pass has waited for so long, is disconnected.
type snapshotter struct {
	server *Server

	answered atomic.Uint64
	refused  atomic.Uint64

	patience time.Duration // how long the present pass may still wait for memory

	mu      sync.Mutex
	waiting []request
	busy    map[*sockets.Peer]int // requests of a client that wait or are being answered
	octets  int                   // encoded and not yet released
	arrived chan struct{}         // wakes run
	freed   chan struct{}         // wakes a pass that waits for memory
}

var errTooManyRequests = errors.New("chp: client has too many unanswered snapshot requests")

func newSnapshotter(s *Server) *snapshotter {
	return &snapshotter{
		server:  s,
		busy:    map[*sockets.Peer]int{},
		arrived: make(chan struct{}, 1),
		freed:   make(chan struct{}, 1),
	}
}

// add lines up a request.
func (n *snapshotter) add(r request) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.busy[r.peer] >= maxRequests {
		return errTooManyRequests
	}
	n.busy[r.peer]++
	n.waiting = append(n.waiting, r)
	signal(n.arrived)
	return nil
}

// done takes a request off its client's count.
func (n *snapshotter) done(r request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.busy[r.peer]--; n.busy[r.peer] == 0 {
		delete(n.busy, r.peer)
	}
	signal(n.arrived) // the client's next request may wait for this
}

// run makes passes until the context ends, and awaits all senders.
func (n *snapshotter) run(ctx context.Context) {
	var senders sync.WaitGroup
	defer senders.Wait()
	serving := map[*sockets.Peer]*chain{} // the chain last begun for a client, to keep its answers in order
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.arrived:
		}
		if batch := n.collect(serving); len(batch) > 0 {
			n.pass(ctx, batch, &senders, serving)
		}
	}
}

// collect takes the waiting requests, at most one a client and none of a
// client that is still being sent an earlier answer.
func (n *snapshotter) collect(serving map[*sockets.Peer]*chain) []request {
	for peer, c := range serving {
		if c.finished(peer) {
			delete(serving, peer)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var batch, later []request
	taken := map[*sockets.Peer]bool{}
	for _, r := range n.waiting {
		if taken[r.peer] || serving[r.peer] != nil {
			later = append(later, r)
			continue
		}
		taken[r.peer] = true
		batch = append(batch, r)
	}
	n.waiting = later
	return batch
}

// pass answers a batch of requests from one cut.
func (n *snapshotter) pass(ctx context.Context, batch []request, senders *sync.WaitGroup, serving map[*sockets.Peer]*chain) {
	n.patience = n.server.opts.SnapshotTimeout
	chains := map[want]*chain{}
	var subtrees, keys []*chain
	for _, r := range batch {
		c := chains[r.want]
		if c == nil {
			c = newChain(n, r.want)
			chains[r.want] = c
			if r.want.exact {
				keys = append(keys, c)
			} else {
				subtrees = append(subtrees, c)
			}
		}
		c.readers[r.peer] = &chainReader{}
		serving[r.peer] = c
	}
	cut := n.server.sequencer.cut(func(s *store) {
		for _, c := range keys {
			s.view(octetsOf(c.want.subtree), func(r record) { c.only = append(c.only, r...) })
		}
	})
	defer cut.release()
	for _, r := range batch {
		c := chains[r.want]
		senders.Go(func() {
			c.sendTo(ctx, r.peer)
			n.done(r)
		})
	}
	for _, c := range keys {
		if c.only != nil {
			c.append(ctx, c.only)
		}
	}
	if len(subtrees) > 0 {
		byPrefix := map[string][]*chain{}
		for _, c := range subtrees {
			byPrefix[c.want.subtree] = append(byPrefix[c.want.subtree], c)
		}
		n.encode(ctx, cut, byPrefix)
	}
	for _, c := range chains {
		c.end(ctx, cut.seq)
	}
}

// encode puts every record of the cut into the chains of the subtrees that it
// lies in. Finding them takes one look-up for each slash of the key, however
// many subtrees there are.
func (n *snapshotter) encode(ctx context.Context, cut *cut, byPrefix map[string][]*chain) {
	everything := byPrefix[""]
	onlyEverything := len(everything) > 0 && len(byPrefix) == 1
	cut.each(func(r record, _ uint64) bool {
		for _, c := range everything {
			c.append(ctx, r)
		}
		if onlyEverything {
			return ctx.Err() == nil
		}
		key := r.key()
		if len(key) == 0 || key[0] != '/' {
			return true
		}
		for at := 1; ; {
			i := bytes.IndexByte(key[at:], '/')
			if i < 0 {
				return ctx.Err() == nil
			}
			at += i + 1
			for _, c := range byPrefix[string(key[:at])] {
				c.append(ctx, r)
			}
		}
	})
}

// appendKVSYNC appends a record as KVSYNC: for our own clients with the time to
// live that is left, else with UUID and properties empty (RFC 12, State
// Synchronization).
func appendKVSYNC(dst []byte, r record, full bool, d *deadlines) []byte {
	if full {
		return appendAged(dst, r, d.left(r))
	}
	size := r.size()
	dst = append(dst, r[:r.keyEnd()+sequenceFrame]...)
	dst = append(dst, zmtp.FlagMore, 0, zmtp.FlagMore, 0)
	return append(dst, r[size-frameSize(len(r.value())):size]...)
}

// sequenceFrame is the size of the sequence's frame, header included.
const sequenceFrame = 2 + 8

// appendKTHXBAI appends the end of a snapshot. Its sequence is that of the cut,
// the highest that the snapshot can contain.
func appendKTHXBAI(dst []byte, sequence int64, props []byte, subtree string) []byte {
	var octets [8]byte
	binary.BigEndian.PutUint64(octets[:], uint64(sequence))
	return zmtp.AppendMessage(dst, []byte("KTHXBAI"), octets[:], nil, props, []byte(subtree))
}

// reserve waits until there is memory for one more parcel. It returns false
// when a pass has waited for SnapshotTimeout altogether: somebody is too slow,
// and the cut of the pass must not be held for ever.
func (n *snapshotter) reserve(ctx context.Context, octets int) bool {
	begun := time.Now()
	defer func() { n.patience -= time.Since(begun) }()
	timeout := time.NewTimer(n.patience)
	defer timeout.Stop()
	for {
		n.mu.Lock()
		if n.octets == 0 || n.octets+octets <= n.server.opts.SnapshotMemory {
			n.octets += octets
			n.mu.Unlock()
			return true
		}
		n.mu.Unlock()
		select {
		case <-n.freed:
		case <-timeout.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

func (n *snapshotter) free(octets int) {
	n.mu.Lock()
	n.octets -= octets
	n.mu.Unlock()
	signal(n.freed)
}

// signal leaves a token in a channel of capacity one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
