package snapshot

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"clustermap/chp/internal/state"
	"clustermap/chp/internal/wire"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
	"clustermap/internal/timer"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// Server answers snapshot requests.
//
// Clients pull. Each client that is sent snapshots has a goroutine (see joiner) that
// encodes the next parcel of its snapshot when the connection has room. It reads a cut
// of the map, which does not change while updates continue. So a client that stops
// reading keeps only the parcels lent to its connection, and the cut; no other client
// waits for it.
//
// Clients that request the same part of one cut share a chain: the first to reach a
// parcel encodes it, and the others are sent the same bytes. All requests that wait
// when a cut is made share it, and so does a later one if there was no update since.
//
// The cost of a request depends on its subtree:
//
//   - what came after a sequence: at once, from what the server retains;
//   - a key: one look-up, at once;
//   - everything: one walk through the cut, shared by the chain;
//   - a subtree: one walk through the cut finds the records of all waiting
//     subtrees (see scan).
//
// Memory is bounded for all clients together: parcels by Options.Memory (see budget),
// the lists of records by an eighth of that (see scan), and segments that only cuts
// still pin by trim. A client that reads nothing for Options.Timeout is disconnected.
type Server struct {
	opts    Options
	Counted Counters

	arrived chan struct{}  // wakes run
	trimmed time.Time      // when trim last ran; owned by run
	joining sync.WaitGroup // goroutines of joiners

	// mu guards the fields below, and the fields of chains, parcels, budgets and
	// joiners whose comments name it. No other lock is taken under it.
	mu       sync.Mutex
	joiners  map[*sockets.Peer]*joiner
	waiting  []*answer            // for a cut
	latest   map[wire.Want]*chain // the newest chain of each want, while it is sent
	pinned   map[*pinnedCut]bool  // cuts in use
	gathered time.Time            // when the last round with requests for everything was
	whole    []*chain             // the chains of that round
	scanning bool                 // a scan is running
	listed   int                  // bytes of chain.list, over all chains
	small    budget               // parcels of up to buf.Large
	large    budget               // parcels of one larger value
}

type answer struct {
	asked    time.Time
	joiner   *joiner
	want     wire.Want
	progress []byte        // message to send before the snapshot, or nil
	chain    *chain        // set before ready is closed
	ready    chan struct{} // closed when chain is set
}

// records are those of a cut, in no particular order, or of a tail.
type records interface {
	From(at store.Position, f func(r kvmsg.Record, at store.Position) bool)
	Record(at store.Position) kvmsg.Record
	Piece(at store.Position, size int) store.Piece
	Len() int
	Bytes() int
	Outlived(s *store.Map, seen map[*store.Segment]bool) (bytes int)
	Release()
}

// pinnedCut is a cut, or a tail, that chains read. Server.mu guards users and moved.
type pinnedCut struct {
	records
	deadlines *timer.Deadlines
	end       wire.End

	bytes int       // of its segments
	users int       // chains, the round that made it, and trim
	moved time.Time // when a client last acquired a parcel
	ended bool      // dropped by trim
}

// tail reports whether it is a tail.
func (h *pinnedCut) tail() bool {
	_, is := h.records.(*store.Tail)
	return is
}

// ErrTooMany is returned for a request of a client that has MaxRequests unanswered ones.
var ErrTooMany = errors.New("chp: the client has too many unanswered snapshot requests")

// New returns a server of snapshots. Run must be called.
func New(o Options) *Server {
	memory := o.Memory
	return &Server{
		opts:    o,
		joiners: map[*sockets.Peer]*joiner{},
		latest:  map[wire.Want]*chain{},
		pinned:  map[*pinnedCut]bool{},
		arrived: make(chan struct{}, 1),
		small:   budget{limit: memory - memory/4},
		large:   budget{limit: memory / 4},
	}
}

// Add adds a request. A request for one key is answered at once; others may wait for
// Run. The context ends the answers: it is the one of Run.
func (n *Server) Add(ctx context.Context, peer *sockets.Peer, want wire.Want) error {
	a := &answer{asked: time.Now(), want: want, ready: make(chan struct{})}
	n.mu.Lock()
	idle := n.joiners[peer] == nil
	n.mu.Unlock()
	if idle { // true for a session's first request
		// The report is made before the cut. So the cut contains the updates that it
		// reports, and it may be sent when the snapshot may.
		a.progress = n.opts.Progress(peer)
	}
	n.mu.Lock()
	j := n.joiners[peer]
	if j != nil && (len(j.answers) >= MaxRequests || want.Since && j.since() >= maxSince) {
		n.mu.Unlock()
		return ErrTooMany
	}
	if j == nil {
		j = newJoiner(n, peer)
		n.joiners[peer] = j
		n.joining.Go(func() { j.run(ctx) })
	}
	a.joiner = j
	j.answers = append(j.answers, a)
	wake.Signal(j.wake)
	if c := n.latest[want]; c != nil && !c.cut.ended && c.cut.end.Sequence == n.opts.Live.Sequence() {
		// The map has not changed since the cut.
		n.begin(c, a)
		n.mu.Unlock()
		return nil
	}
	if want.Since {
		n.mu.Unlock()
		n.resume(a)
		return nil
	}
	if !want.Exact {
		n.waiting = append(n.waiting, a)
		n.mu.Unlock()
		wake.Signal(n.arrived)
		return nil
	}
	n.mu.Unlock()
	single, list := n.opts.Live.CutKey([]byte(want.Subtree))
	pinned := n.pinCut(single)
	c := newChain(n, want, pinned)
	c.listed, c.list = true, list
	for _, at := range list {
		c.size += len(pinned.Record(at))
	}
	n.mu.Lock()
	n.begin(c, a)
	n.drop(pinned)
	n.mu.Unlock()
	return nil
}

// count counts an answer that was sent.
func (n *Server) count(a *answer) {
	switch {
	case !a.want.Since:
		n.Counted.Answered.Add(1)
		n.Counted.Took.add(time.Since(a.asked))
	case !a.chain.cut.end.Compacted:
		n.Counted.Resumed.Add(1)
	}
}

// Run makes cuts for waiting requests until the context ends.
func (n *Server) Run(ctx context.Context) {
	var scans sync.WaitGroup
	defer scans.Wait()
	for {
		var timer *time.Timer
		var again <-chan time.Time
		if wait := n.round(ctx, &scans); wait > 0 {
			timer = time.NewTimer(wait)
			again = timer.C
		}
		select {
		case <-ctx.Done():
		case <-n.arrived:
		case <-again:
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// Wait waits until nothing is sent any more, after the context has ended. Add must not be
// called meanwhile.
func (n *Server) Wait() { n.joining.Wait() }

// round answers waiting requests from one cut. It returns the wait before the next
// round if no request arrives, or 0 if none is due.
func (n *Server) round(ctx context.Context, scans *sync.WaitGroup) time.Duration {
	if now := time.Now(); now.Sub(n.trimmed) >= trimEvery {
		n.trimmed = now
		n.trim()
	}
	n.mu.Lock()
	whole, trees, wait := n.due()
	n.mu.Unlock()
	if len(whole)+len(trees) > 0 {
		pinned := n.pinCut(n.opts.Live.Cut())
		n.beginWhole(pinned, whole)
		if len(trees) == 0 {
			n.release(pinned)
		} else {
			scans.Go(func() {
				n.scan(ctx, pinned, trees)
				n.release(pinned)
				wake.Signal(n.arrived) // others may have come meanwhile
			})
		}
	}
	return wait
}

// due removes and returns the requests that can be answered now, and returns the wait
// before the others can. mu must be held.
func (n *Server) due() (whole, trees map[wire.Want][]*answer, wait time.Duration) {
	if len(n.pinned) > 0 {
		wait = trimEvery
	}
	gather := gatherWithin - time.Since(n.gathered)
	if gather > 0 {
		encoding := false
		for _, c := range n.whole {
			encoding = encoding || len(c.members) > 0 && !c.encoded
		}
		if !encoding {
			gather = 0
		}
	}
	whole, trees = map[wire.Want][]*answer{}, map[wire.Want][]*answer{}
	var later []*answer
	for _, a := range n.waiting {
		switch {
		case a.joiner.gone:
		case a.want.Subtree == "" && gather <= 0:
			whole[a.want] = append(whole[a.want], a)
		case a.want.Subtree != "" && !n.scanning:
			trees[a.want] = append(trees[a.want], a)
		default:
			if a.want.Subtree == "" && (wait == 0 || gather < wait) {
				wait = gather
			}
			later = append(later, a)
		}
	}
	n.waiting = later
	n.scanning = n.scanning || len(trees) > 0
	return whole, trees, wait
}

func (n *Server) beginWhole(pinned *pinnedCut, whole map[wire.Want][]*answer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(whole) > 0 {
		n.gathered, n.whole = time.Now(), nil
	}
	for w, answers := range whole {
		c := newChain(n, w, pinned)
		n.whole = append(n.whole, c)
		n.begin(c, answers...)
	}
}

// begin starts sending a chain for answers. mu must be held.
func (n *Server) begin(c *chain, answers ...*answer) {
	for _, a := range answers {
		if a.joiner.gone {
			continue
		}
		if len(c.members) == 0 {
			n.latest[c.want] = c
			c.cut.users++
			n.listed += c.listBytes()
		}
		c.members[a] = true
		a.chain = c
		close(a.ready)
	}
}

// remove removes an answer from its chain, and ends the chain after the last one. mu
// must be held.
func (n *Server) remove(a *answer) {
	c := a.chain
	if c == nil || !c.members[a] {
		return
	}
	delete(c.members, a)
	if len(c.members) > 0 {
		return
	}
	for _, p := range c.parcels {
		n.uncache(p)
	}
	n.listed -= c.listBytes()
	if n.latest[c.want] == c {
		delete(n.latest, c.want)
	}
	n.drop(c.cut)
	n.settle(&n.small)
	n.settle(&n.large)
	if len(n.waiting) > 0 {
		wake.Signal(n.arrived) // waiting requests need not wait for this chain
	}
}

// resume answers a question what came after a sequence: with what was retained, or that there is
// none.
func (n *Server) resume(a *answer) {
	past := n.opts.Since(a.want.ID, a.want.After)
	end := wire.End{Sequence: past.Sequence, Last: past.Last, ID: past.ID}
	tail := past.Tail
	if tail == nil {
		end.Compacted, end.Oldest = true, past.Oldest
		tail = store.NewTail(nil)
	}
	pinned := n.pin(&pinnedCut{records: tail, deadlines: past.Deadlines, end: end})
	n.mu.Lock()
	n.begin(newChain(n, a.want, pinned), a)
	n.drop(pinned)
	n.mu.Unlock()
}

// pinCut is pin for a cut of the map.
func (n *Server) pinCut(c state.Cut) *pinnedCut {
	end := wire.End{Sequence: c.Sequence, Last: c.Last, New: c.Sequence == n.opts.Fresh, ID: c.ID}
	return n.pin(&pinnedCut{records: c.Cut, deadlines: c.Deadlines, end: end})
}

// pin registers a cut, with one use by the caller.
func (n *Server) pin(h *pinnedCut) *pinnedCut {
	h.bytes, h.users, h.moved = h.Bytes(), 1, time.Now()
	n.mu.Lock()
	n.pinned[h] = true
	if len(n.pinned) == 1 {
		wake.Signal(n.arrived) // run has cuts to trim
	}
	n.mu.Unlock()
	return h
}

func (n *Server) release(h *pinnedCut) {
	n.mu.Lock()
	n.drop(h)
	n.mu.Unlock()
}

func (n *Server) drop(h *pinnedCut) {
	if h.users--; h.users == 0 {
		delete(n.pinned, h)
		h.records.Release()
	}
}

// trim bounds the memory that only cuts still pin (see mayOutlive). Beyond the bound it
// drops the cut that has made no progress for the longest time, and disconnects its
// clients.
func (n *Server) trim() {
	cuts := n.useCuts()
	if len(cuts) == 0 {
		return
	}
	log := &n.opts.Live.Now().Store
	limit := n.mayOutlive(cuts)
	var gone []*sockets.Peer
	for left := slices.Clone(cuts); outlived(log, left) > limit; {
		n.mu.Lock()
		oldest := 0
		for i, h := range left {
			if h.moved.Before(left[oldest].moved) {
				oldest = i
			}
		}
		h := left[oldest]
		h.ended = true
		for _, j := range n.joiners {
			for _, a := range j.answers {
				if a.chain != nil && a.chain.cut == h && !j.trimmed {
					j.trimmed = true
					close(j.evicted) // it may wait for memory, and would pin the cut meanwhile
					gone = append(gone, j.peer)
				}
			}
		}
		n.mu.Unlock()
		left = slices.Delete(left, oldest, oldest+1)
	}
	n.mu.Lock()
	n.dropCuts(cuts)
	n.mu.Unlock()
	for _, peer := range gone {
		peer.Disconnect(sockets.ErrSlowPeer)
	}
}

// useCuts returns the cuts that trim has not dropped, each with one use by the caller.
func (n *Server) useCuts() (cuts []*pinnedCut) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for h := range n.pinned {
		if !h.ended {
			h.users++
			cuts = append(cuts, h)
		}
	}
	return cuts
}

// dropCuts undoes useCuts. mu must be held.
func (n *Server) dropCuts(cuts []*pinnedCut) {
	for _, h := range cuts {
		n.drop(h)
	}
}

// mayOutlive returns the number of bytes that only cuts may pin: twice the largest of
// the log's present size and its size at each cut, plus Options.Memory and what is retained. That is room
// for a large snapshot, and for several that began at about the same time, while the
// whole map is overwritten.
func (n *Server) mayOutlive(cuts []*pinnedCut) int {
	most := n.opts.Live.LogBytes()
	for _, h := range cuts {
		if !h.tail() {
			most = max(most, h.bytes)
		}
	}
	return 2*most + n.opts.Memory + n.opts.Retained
}

// outlived returns the number of bytes that only cuts pin: segments that the log no
// longer uses, and copies of liveness maps.
func outlived(s *store.Map, cuts []*pinnedCut) (bytes int) {
	seen := map[*store.Segment]bool{}
	for _, h := range cuts {
		bytes += h.Outlived(s, seen)
	}
	return bytes
}
