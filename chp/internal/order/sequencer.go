package order

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/hot"
	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/live"
	"clustermap/chp/internal/retain"
	"clustermap/chp/internal/state"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/closed"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/mutate"
	"clustermap/internal/store"
	"clustermap/internal/timer"
	"clustermap/internal/wake"
)

// Options are what a sequencer needs of its server.
type Options struct {
	State   *state.State
	Live    *live.Map // gets the state; Init sets it up
	Journal journal.Journal
	Linked  journal.Index  // of the last entry of the journal that is in the state
	Window  *retain.Window // of the state, or empty; nil keeps nothing

	Publisher  wire.Publisher
	MaxBytes   int64       // of the live records; 0 means no limit
	WatchQueue int         // bound of the queue of each watch, in bytes
	Refused    func(error) // counts an update that is refused
	Stamp      bool        // updates get the time and their author
	Owners     bool        // leases do, so that it is known whose they are

	// EarlyTimeout is the time-out of the pair to which the server belongs, or 0. A server of
	// a pair begins passive.
	EarlyTimeout time.Duration

	// Cluster says that the server is of a cluster. It begins as one that does not lead. Resend gets updates without a
	// number that were ordered here and are lost, in order, with the mutex held. They come before those that came later.
	Cluster bool
	Resend  func(records []byte)
}

// Sequencer orders the updates of a server.
type Sequencer struct {
	o       Options // State and Journal are those of the beginning
	Counted Counters
	waiting atomic.Bool     // new updates may have to wait: some are held, or they are halted. Written under mu
	terms   atomic.Uint64   // ends.count
	closing context.Context // ends when updates of this process are refused; under mu
	end     func()

	// saving is held while the journal gets a map, until it is that of the server. It is locked
	// before mu.
	saving sync.Mutex

	mu      sync.Mutex
	state   *state.State // of all that is committed
	live    *live.Map    // the state, for readers
	order   order
	journal journal.Journal
	linked  journal.Index  // of the last entry in the map
	window  *retain.Window // the last updates in it

	// Of a pair.
	passive bool       // the server does not accept or publish updates
	source  uint64     // see Standing
	halted  halted     // updates wait
	early   wire.Early // updates that came before the active server published them

	// Of a cluster; such a server is passive while it does not lead.
	serves   bool   // it publishes heartbeats
	begun    bool   // it has led, or is about to
	skipping uint64 // the term in which its sequences go on elsewhere, while that is under way
	unique   unique

	held     held          // ordered and not yet committed
	progress chan struct{} // closed when some were published; nil if no goroutine waits
	ends     ends          // of the terms of this server

	shares  shares
	alarm   alarm
	hot     *hot.Sketch // nil unless somebody asks
	scratch scratch
}

// Counters count updates since the start. They are written under the mutex, so that between two
// batches they have what is published.
type Counters struct {
	Updates  atomic.Uint64
	Expired  atomic.Uint64
	Repeated atomic.Uint64 // skipped because they had been accepted before

	Conflicts atomic.Uint64 // requests of which a condition did not hold
}

// ends is how terms of this server as the active one have ended.
type ends struct {
	count uint64
	kept  int64 // the last published update of the term that ended last
	lost  bool  // updates were not published when a term ended, and no Flush has reported it
}

// alarm wakes the clock when the first TTL comes.
type alarm struct {
	armed chan struct{}
	at    time.Duration // when the times to live began that were the first in the timing wheel while it was empty
}

// scratch is memory that is used again.
type scratch struct {
	unfit   []buf.Span // of fitting
	relayed []buf.Span // of Relayed
	own     []buf.Span // of accept for updates of this process
	judge   judge      // of requests
	dead    expiry     // of Expire
	now     Moment     // of Between
	stamp   stamper    // of apply
}

// FirstSequence returns the first sequence of a run that starts at t. It is ahead of
// every earlier run, of this server or another, if none publishes more than 2^20
// updates per millisecond. After the year 2109, or if the clock is so far ahead, it no
// longer grows.
func FirstSequence(t time.Time) int64 {
	return min(max(t.UnixMilli(), 0), state.MaxStart>>20) << 20
}

// Init begins to order what follows the state. Before it, only Committed may be called.
func (q *Sequencer) Init(o Options) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.o, q.journal, q.linked, q.live = o, o.Journal, o.Linked, o.Live
	q.alarm.armed = make(chan struct{}, 1)
	q.closing, q.end = context.WithCancel(context.Background())
	q.live.SetUp(&q.mu, o.WatchQueue)
	q.passive, q.early.Timeout = o.EarlyTimeout > 0 || o.Cluster, o.EarlyTimeout
	if q.window = o.Window; q.window == nil {
		q.window = new(retain.Window)
	}
	q.setState(o.State)
	if !q.passive {
		q.endOrphans() // otherwise Lead does it
	}
	if q.state.Terms.Newest.ID != 0 {
		// A server of a pair made the map, and the other one may have gone on with the last
		// reign, even if this one is started alone.
		q.order.reigns.Begin(0)
	}
}

// setState replaces the map, and orders what follows it. mu must be held.
func (q *Sequencer) setState(s *state.State) {
	q.held.clear() // of the map before
	q.state = s
	q.live.Replace(s)
	q.recount()
	if q.window.Of() != &s.Store { // otherwise it was filled with the state
		q.window.Begin(&s.Store, s.Last(), timer.Now())
	}
	q.order.last = q.state.Last()
	q.order.reigns.Set(q.state.Terms.History())
}

// order is where the sequencer is: it is ahead of the state by the held updates.
type order struct {
	last   int64        // sequence of the last update
	reigns state.Reigns // and the present one
}

// follow records that a batch is ordered.
func (o *order) follow(h *state.Head) {
	o.last = h.Last()
	o.reigns.Advance(h.Reign, h.Last())
}

// From says who has sent a batch. The zero From does not number its updates.
type From struct {
	ID       ledger.ID
	Numbered bool   // the sequence fields hold order numbers, or 0
	By       string // the authenticated author, if updates are stamped; or ""
	Share    *Share // what it may add, or nil if that is not bounded

	// Term is Sequencer.Term when the connection began.
	Term uint64

	// Generation rises with each connection of the client, to any server.
	Generation uint64
}

// errClosed and errStandby are for updates of this process; package chp documents them.
var (
	errClosed  = closed.CHP
	errStandby = wire.ErrStandby
)

// ErrNotActive is the reason for disconnecting a client whose updates this server does not
// take because the other one of its pair is active.
var ErrNotActive = errors.New("chp: this server is not the active one")

// Accept orders and, if nothing has to be waited for, publishes a batch of updates that were
// checked. It returns the updates that the map or their client's share has no room for, with the reasons as tags, in a slice that is
// valid until the next call, and the number of updates that it skipped because they had been accepted
// before. If ok is false, it did nothing: the caller must call Room, and Accept again. One
// goroutine at a time may call it.
func (q *Sequencer) Accept(b *hooks.Batch, from From) (unfit []buf.Span, repeated int, ok bool) {
	wire, spans := b.Wire(), b.Spans()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stale(from) {
		b.Peer().Disconnect(ErrNotActive) // so that the client sends them again
		return nil, 0, true
	}
	if q.halted != (halted{}) || q.passive && q.o.Cluster {
		return nil, 0, false
	}
	if q.passive && from.Numbered && q.state.Clients.Miss(from.ID, wire, spans) {
		b.Peer().Disconnect(ErrNotActive) // so that the client sends them again
	}
	if q.passive || !q.early.Empty() {
		if spans = q.early.Filter(b, q.passive, timer.Now()); len(spans) == 0 {
			return nil, 0, true
		}
	}
	if !q.fits(spans, from.By) {
		return nil, 0, false
	}
	unfit, repeated = q.acceptNow(wire, spans, from)
	return unfit, repeated, true
}

// acceptNow is accept for an active server. mu must be held.
func (q *Sequencer) acceptNow(wire []byte, spans []buf.Span, from From) (unfit []buf.Span, repeated int) {
	if from.Numbered {
		all := len(spans)
		spans = q.state.Clients.Once(from.ID, wire, spans)
		if repeated = all - len(spans); repeated > 0 {
			q.Counted.Repeated.Add(uint64(repeated))
		}
	}
	if q.o.Cluster && (!from.Numbered || from.ID.IsNode()) {
		spans = q.unique.filter(wire, spans)
	}
	if len(spans) == 0 {
		return nil, repeated
	}
	q.scratch.unfit = q.scratch.unfit[:0]
	if from.Share != nil {
		spans = q.within(from.Share, wire, spans, from.By)
	}
	if len(spans) > 0 && int64(buf.Extent(spans))+q.grown(len(spans), from.By) > q.mapRoom() {
		spans = q.fitting(wire, spans, from.By)
	}
	if unfit = q.scratch.unfit; from.Numbered && len(unfit) > 0 {
		q.state.Clients.Refuse(from.ID, wire, unfit)
	}
	if len(spans) == 0 {
		return unfit, repeated
	}
	q.order.reigns.Count()
	e := state.Entry{Head: state.Head{At: timer.Now()}, Wire: wire, Spans: spans, Resend: !from.Numbered}
	if from.Numbered {
		if e.Counter = uint64(kvmsg.Record(wire[spans[len(spans)-1].Start:]).Seq()); e.Counter > 0 {
			e.Client = from.ID
		}
	}
	q.apply(&e, from.By)
	q.Counted.Updates.Add(uint64(len(spans)))
	return unfit, repeated
}

// apply orders updates of an author, and publishes them unless they must be committed first. mu
// must be held.
func (q *Sequencer) apply(e *state.Entry, by string) {
	if q.o.Stamp {
		q.scratch.stamp.stamp(e, by, false)
	}
	e.Reign, e.First, e.Count = q.order.reigns.Present, q.order.last+1, uint32(len(e.Spans))
	q.order.follow(&e.Head)
	atOnce := q.journal.AtOnce() && q.held.empty()
	if len(q.shares.parts) > 0 {
		q.noteEntry(e, !atOnce)
	}
	if atOnce {
		out := q.state.Apply(e)
		clear(q.shares.ahead)
		q.linked = q.journal.Append(e.Head, out.Pieces, 0)
		q.arm(out, e.At)
		q.send(out.Pieces, e.Spans, e.Grouped)
		return
	}
	pieces := q.state.Append(e)
	b := heldBatch{Head: e.Head, index: q.journal.Append(e.Head, pieces, q.held.size()), pieces: pieces, spans: e.Spans, grouped: e.Grouped, resend: e.Resend}
	if b.index == journal.Never {
		q.untaken()
	}
	if q.held.empty() && q.journal.Committed(b.index, b.Last()) {
		q.publish(&b)
		return
	}
	q.held.add(&b)
	q.noteWaits()
}

// link puts a batch that was appended into the map. mu must be held.
func (q *Sequencer) link(b *heldBatch) {
	q.arm(q.state.Link(&b.Head, b.pieces, b.spans), timer.Now())
	q.noteLinked(b)
	q.linked = b.index
}

// publish puts a batch into the map of an active server, and publishes it. mu must be held.
func (q *Sequencer) publish(b *heldBatch) {
	q.link(b)
	q.send(b.pieces, b.spans, b.grouped)
}

// arm wakes the clock if an entry has set the first deadline, at a time.
func (q *Sequencer) arm(out state.Outcome, at time.Duration) {
	if out.Timed {
		q.alarm.at = at
		wake.Signal(q.alarm.armed)
	}
}

// send passes pieces of the log, which are in the map, to the publisher and to the watches
// of this process. spans are their messages, in order. Behind grouped ones comes a heartbeat: it
// tells those who do not get the last update of a transaction that it is complete. mu must be held.
func (q *Sequencer) send(pieces []store.Piece, spans []buf.Span, grouped bool) {
	q.show(pieces)
	for _, p := range pieces {
		if q.hot != nil {
			q.hot.Add(p.Wire(), spans[:p.Records])
		}
		// The publisher's policy is to disconnect, so this does not wait; it
		// fails only once the publisher is closed.
		_ = q.o.Publisher.SendSpans(context.Background(), p.Wire(), spans[:p.Records], p.Segment)
		spans = spans[p.Records:]
	}
	if grouped {
		q.o.Publisher.Heartbeat(q.state.Last())
	}
}

// show passes pieces of the log, which are in the map, to what follows the map in this process.
// mu must be held.
func (q *Sequencer) show(pieces []store.Piece) {
	q.window.Add(pieces)
	q.live.Push(pieces)
}

// heartbeat publishes HUGZ with the sequence of the last published update, unless the server is
// passive: a client of another implementation that still follows such a server notices the
// silence and changes to the active one.
func (q *Sequencer) heartbeat() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.window.Tick(timer.Now())
	if q.hot != nil && timer.Now()-q.hot.Asked > hotIdle {
		q.hot = nil
	}
	if !q.passive || q.serves {
		q.o.Publisher.Heartbeat(q.state.Last())
		q.live.Bookmark()
	}
}

// expiry is the deletions of one portion of expired keys, in wire form.
type expiry struct {
	wire   []byte
	spans  []buf.Span
	ending ending // of leases
}

// canExpire reports whether Expire would have to wait for nothing. An active server
// expires keys also if it holds updates because it may be cut off: clients that only
// listen would wait for ever, and what a server does by itself does not decide whose map
// wins.
func (q *Sequencer) canExpire() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.passive || !q.halted.handover && q.held.bytes < MaxHeld && q.journal.Room(wake.Ended) == nil
}

// Expire deletes the keys whose TTL has ended and publishes the deletions in one batch, and then ends
// leases.
// Keys that the grace spares get its end as their deadline.
// It works in portions, so that updates and heartbeats continue in between, and reports
// whether there is more to do. size is the number of published bytes.
func (q *Sequencer) Expire(now time.Time) (more bool, size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.passive || q.halted.handover {
		return false, 0 // the active server expires keys
	}
	d := &q.scratch.dead
	d.wire, d.spans, more = q.state.Expired(timer.At(now), expirePortion, d.wire[:0], d.spans[:0])
	d.spans = q.held.filter(d.spans, &q.state.Deadlines)
	if len(d.spans) > 0 {
		if mutate.CountExpiry {
			q.order.reigns.Count()
		}
		q.apply(&state.Entry{Head: state.Head{At: timer.Now()}, Wire: d.wire, Spans: d.spans}, "")
		q.Counted.Expired.Add(uint64(len(d.spans)))
		size = len(d.wire)
	}
	leases, bytes := q.endLeases(d)
	more, size = more || leases, size+bytes
	if !more && cap(d.wire) > keepExpiry {
		q.scratch.dead = expiry{}
	}
	return more, size
}

// timers returns the number of keys with a TTL in the timing wheel and of leases that are to end, and
// alarm.at.
func (q *Sequencer) timers() (n int, since time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.Deadlines.Len() + q.state.Leases.Due(), q.alarm.at
}

// Moment is what is true between two batches.
type Moment struct {
	State   *state.State // of all that is committed; it may be read
	Newest  state.Reign  // and the last update that was ordered
	Held    int          // number of batches that were ordered and are not in the map
	Passive bool
	Halted  bool // a handover makes updates wait: see Halt
}

// Between calls f between two batches. f must not wait, nor call the sequencer, nor keep now.
func (q *Sequencer) Between(f func(now *Moment)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := &q.scratch.now // on the heap once: f makes it escape
	*now = Moment{
		State: q.state, Newest: q.order.reigns.Newest, Held: q.held.size(), Passive: q.passive, Halted: q.halted.handover,
	}
	f(now)
	*now = Moment{}
}

// Live returns the map for readers.
func (q *Sequencer) Live() *live.Map { return q.live }

// Journal returns the journal, for what is safe for concurrent use.
func (q *Sequencer) Journal() journal.Journal { return q.journal }

// Wrap replaces the journal by one that stands on it, before anything is ordered.
func (q *Sequencer) Wrap(wrap func(journal.Journal) journal.Journal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.journal = wrap(q.journal)
}
