package follow

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/state"
	"clustermap/chp/internal/subtree"
	"clustermap/chp/internal/txn"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	netlink "clustermap/internal/link"
	"clustermap/internal/mutate"
	"clustermap/sockets"
)

// session is one connection to one server, from connecting to its first fault: a SUB
// and a DEALER socket, and a PUB socket if the client writes. The sockets connect once.
// When one connection breaks, the session ends with the other two, and with everything
// that it knows about sequences and about updates that were sent through it.
//
//	connect    all handshakes, bounded by SyncTimeout
//	subscribe  each subtree, then HUGZ; wait until the subscriptions are in force
//	resume     SINCE?; KVPUBs that the client has missed bring the replica up to date, or:
//	join       ICANHAZ; KVSYNCs make the new state, with the KVPUBs that arrive meanwhile,
//	           and it replaces the old one
//	follow     KVPUBs are applied as they arrive
//
// After the snapshot the DEALER socket stays open if the server is of this package,
// which reports refused updates on it, and answers questions.
//
// Goroutines: begin runs in one of its own (see attempts) and follow in the client's.
// The watchdog runs beside them, and during join a goroutine that fetches the snapshot.
// These two have ended when close returns.
type session struct {
	connections
	owner *Follower
	index int // of the server in Options.Servers

	over            chan struct{} // closed when the session has ended and nothing is sent through it
	ours            bool          // the server is of this package
	confirms        bool          // the publisher confirms subscriptions
	resumes         bool          // the server answers SYNC? and SINCE?
	reportsRefusals bool          // the server reports refused updates
	transactions    bool          // the server judges requests
	leases          bool          // the server knows leases
	maxValue        int           // largest value that the server accepts, in bytes; 0 if unknown
	requests        subtree.Set   // the subtrees to request
	watchdog        *watchdog

	running sync.WaitGroup
	failure error // error of begin

	applied atomic.Pointer[ledger.Reply] // the server's first reply, or nil

	questions questions

	// Owned by the reader of the snapshot connection.
	arriving int64 // bytes of the snapshots so far
	reply    ledger.Reply

	// Owned by run.
	batch     hooks.Batch
	stream    *stream
	partial   partial
	replica   *state.State // that the server has sent
	resyncing *time.Timer  // ends the session because of a gap
	end       wire.End     // of the first snapshot, or of the tail; set by fetch
	resumed   bool         // the replica is that of the session before
	kept      int          // keys of the old state that were kept because of fresh
	active    time.Time    // when the session became ACTIVE
	arrived   int64        // bytes of updates
}

// Bits of watchdog.heard.
const (
	fromSubscriber uint32 = 1 << iota
	fromSnapshot
)

// newSession returns a session that has not begun. Others with the same server are under way
// at addresses of its name.
func (f *Follower) newSession(index int, others []netip.Addr) *session {
	f.generation++
	s := &session{
		owner: f, index: index, over: make(chan struct{}), watchdog: newWatchdog(),
		connections: connections{
			opts: &f.opts, server: f.opts.Servers[index], dialect: f.opts.Dialect.NewSession(), openings: make(chan opening, 3),
			who: wire.Client{ID: f.id, Generation: f.generation, Progress: max(f.opts.SendQueue/4, 1)},
		},
	}
	if f.opts.Dial == nil {
		s.host = netlink.NewHost(others)
	}
	s.questions.init()
	s.ctx, s.fail = context.WithCancelCause(f.ctx)
	return s
}

// begin connects. The caller must call close afterwards, even after an error.
func (s *session) begin() error {
	if err := s.open(); err != nil {
		return err
	}
	s.running.Go(func() { s.watchdog.run(s.ctx, func() { s.fail(ErrSilent) }) })
	err := s.connect()
	return cmp.Or(context.Cause(s.ctx), err)
}

// follow fetches the snapshot and applies updates until the session fails. It returns
// how long the session was ACTIVE and why it ended: the cause of the context if there
// is one.
func (s *session) follow() (active time.Duration, err error) {
	defer s.close()
	err = s.run()
	err = cmp.Or(context.Cause(s.ctx), err) // that of the context says more
	if !s.active.IsZero() {
		active = time.Since(s.active)
	}
	return active, err
}

// close ends the session and waits for its goroutines.
func (s *session) close() {
	s.fail(nil)
	s.running.Wait()
	if s.resyncing != nil {
		s.resyncing.Stop()
	}
	s.connections.close()
	s.batch.Release()
	close(s.over)
	s.owner.status.ended(s.index)
}

func (s *session) run() error {
	s.owner.silent.Store(true)
	s.owner.status.reached(s.index, PhaseSubscribing)
	s.owner.setState(StateSyncing, s.server.Name)
	if err := s.subscribe(); err != nil {
		return err
	}
	s.owner.status.reached(s.index, PhaseSnapshot)
	resumed, err := s.resume()
	if err == nil && !resumed {
		err = s.join()
	}
	if err != nil {
		return err
	}
	s.owner.status.reached(s.index, PhaseActive)
	s.active = time.Now()
	return s.apply()
}

// open creates the SUB and the DEALER socket. They never reconnect: messages that
// arrive after a reconnection could not be told from earlier ones.
func (s *session) open() error {
	f := s.owner
	subscriber := &intake{ear: fromSubscriber, command: kvmsg.KindHUGZ, tag: hugzTag, heard: &s.watchdog.heard, silent: &f.silent, refused: f.opts.Refused}
	snapshot := &intake{ear: fromSnapshot, command: kvmsg.KindKTHXBAI, tag: kthxbaiTag, heard: &s.watchdog.heard, silent: &f.silent, refused: f.opts.Refused}
	if f.opts.Subtrees.Exact() {
		subscriber.wanted = &f.opts.Subtrees // a subscription is a prefix: "/a/b" also matches "/a/bc"
	}
	if !f.opts.Subtrees.All() {
		snapshot.wanted = &f.opts.Subtrees
	}
	options := s.socketOptions()
	options.RecvHWM, options.Linger, options.ReconnectInterval = sockets.Unlimited, sockets.LingerNone, sockets.ReconnectNever
	options.MaxMessageSize = f.opts.MaxMessage
	options.Monitor = func(e sockets.Event) {
		if !mutate.Reconnect || !s.joined.Load() {
			s.watch(e, false)
		}
	}
	updates := s.dialect.Prepare(subscriber.prepare, f.opts.Refused)
	if mutate.Reconnect {
		options.ReconnectInterval = 0
	}
	sub, err := sockets.NewSub(options)
	if err != nil {
		return err
	}
	options.ReconnectInterval = sockets.ReconnectNever
	options.Monitor = func(e sockets.Event) {
		if !s.unneeded.Load() { // otherwise the session has closed it
			s.watch(e, false)
		}
	}
	dealer, err := sockets.NewDealer(options)
	if err != nil {
		_ = sub.Close() // closing a socket does not fail
		return err
	}
	records := s.dialect.Prepare(snapshot.prepare, f.opts.Refused)
	hooks.Prepare(sub, updates)
	hooks.Prepare(dealer, func(b *hooks.Batch) {
		if s.standsBy(b) {
			return
		}
		if s.joined.Load() {
			s.hear(b)
			return
		}
		if s.overflows(b) || s.isDenied(b) {
			return
		}
		s.learn(b)
		records(b)
	})
	hooks.Scan(sub, wire.ScanUpdate)
	hooks.Scan(dealer, wire.ScanUpdate)
	s.sub, s.dealer = sub, dealer
	return nil
}

// standsBy ends the session if a batch of the snapshot connection contains STANDBY, and
// reports whether it did. The rest of the batch is dropped: an incomplete snapshot is
// useless, and a complete one stays as it is.
func (s *session) standsBy(b *hooks.Batch) bool {
	for _, span := range b.Spans() {
		if wire.IsStandby(b.Wire()[span.Start:span.End]) && wire.Ours((*sockets.Peer)(b.Peer())) {
			s.fail(errStandby)
			b.SetSpans(nil)
			return true
		}
	}
	return false
}

// isDenied ends the session if a batch of the snapshot connection says that the client may not read what it has asked
// for, and reports whether it does. It is called before the snapshot is complete.
func (s *session) isDenied(b *hooks.Batch) bool {
	for i := range b.Len() {
		if d, ok := wire.ParseDenial(b.Message(i)); ok {
			s.fail(&d.Why)
			b.SetSpans(nil)
			return true
		}
	}
	return false
}

// overflows ends the session if the snapshots have more bytes than a map that the client may
// have, twice, and reports whether they do. What arrives need not make the map larger: a
// server may send one key for ever, or what is not CHP. It runs in the goroutine that reads
// the connection.
func (s *session) overflows(b *hooks.Batch) bool {
	s.arriving += int64(buf.Extent(b.Spans()))
	if (s.arriving-snapshotAhead)/2 <= s.opts.MaxMapBytes {
		return false
	}
	s.fail(fmt.Errorf("%w: its snapshot goes on after %d bytes", ErrMapTooLarge, s.arriving))
	b.SetSpans(nil)
	return true
}

// hear handles the messages on the snapshot connection after the snapshot: refusals and
// progress reports. It leaves none in the batch.
func (s *session) hear(b *hooks.Batch) {
	for i := range b.Len() {
		if s.owner.syncs.answer(s, b.Message(i)) || s.owner.leases.answer(s, b.Message(i)) {
			continue
		}
		if s.reply.Parse(b.Message(i)) {
			s.opts.Writer.Reply(s, &s.reply)
		} else if id, reason, ok := wire.ParseRefusal(b.Message(i)); ok {
			s.opts.Writer.Refused(s, id, reason)
		} else if answers, ok := txn.ParseAnswers(b.Message(i)); ok {
			s.opts.Writer.Requests.Answered(s, answers)
		} else if s.questions.hear(b.Message(i)) {
			s.owner.syncs.again(s) // it may have taken the room, and has come now
		}
	}
	b.SetSpans(b.Spans()[:0])
}

// learn removes replies from the messages that arrive on the snapshot connection before the
// end of the snapshot, and stores the first one, which comes before the snapshot. It runs
// in the goroutine that reads the connection.
func (s *session) learn(b *hooks.Batch) {
	if !slices.ContainsFunc(b.Spans(), func(span buf.Span) bool { return ledger.IsReply(b.Wire()[span.Start:span.End]) }) {
		return
	}
	kept := b.Spans()[:0]
	for i, span := range b.Spans() {
		if m := b.Message(i); !ledger.IsReply(m) {
			kept = append(kept, span)
		} else if reply := new(ledger.Reply); reply.Parse(m) {
			s.applied.CompareAndSwap(nil, reply)
		}
	}
	b.SetSpans(kept)
}

// connect connects the sockets and waits for their handshakes.
func (s *session) connect() error {
	s.watchdog.expect(0, s.opts.SyncTimeout)
	waiting := 1
	if err := s.sub.Connect(s.server.Publisher); err != nil {
		return err
	}
	if s.server.Snapshot != "" {
		if err := s.dealer.Connect(s.server.Snapshot); err != nil {
			return err
		}
		waiting++
	}
	if s.opts.Writer.Writing() {
		if err := s.openUplink(); err != nil {
			return err
		}
		waiting++
	}
	s.ours = s.opts.Dialect.Full
	var unfit, unlike error
	for range waiting {
		select {
		case o := <-s.openings:
			switch {
			case o.err != nil:
				unfit = o.err
			case !o.collector:
				confirms, err := wire.CheckModel(s.opts.Model, o.peer)
				if err != nil {
					unlike = err
				}
				s.confirms = s.confirms || confirms
				s.ours = s.ours && strings.HasPrefix(wire.ProductOf(o.peer), "clustermap/")
				s.resumes = s.resumes || wire.Resumes(o.peer)
				s.reportsRefusals = s.reportsRefusals || wire.ReportsRefusals(o.peer)
				s.questions.kept = s.questions.kept || wire.KeepsHistory(o.peer)
				s.transactions = s.transactions || wire.JudgesTransactions(o.peer)
				s.leases = s.leases || wire.KnowsLeases(o.peer)
				s.maxValue = max(s.maxValue, wire.MaxValueOf(o.peer))
			}
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
	if unlike != nil {
		return unlike
	}
	if unfit != nil {
		return &CollectorError{s.server.Name, unfit}
	}
	if s.uplink != nil {
		if err := s.uplink.mirror(s.ours); err != nil {
			return err
		}
		if err := s.uplink.Ready(); err != nil {
			return err
		}
	}
	switch s.requests = s.opts.Subtrees; {
	case s.ours:
		err := s.dealer.SetOptions(func(o *sockets.Options) { o.RecvHWMBytes = snapshotAhead })
		if err != nil {
			return err
		}
	case s.opts.Dialect.Subtrees:
		s.requests = s.opts.Subtrees.Plain()
	default:
		s.requests = subtree.New(nil)
	}
	s.resumes = s.resumes && s.ours && s.server.Snapshot != ""
	s.leases = s.leases && s.ours && s.transactions && s.server.Snapshot != ""
	s.stream = newStream(&s.requests, s.ours)
	// Jumps are checked only if the client subscribes to the whole map, and if there
	// are snapshots to close a gap with.
	s.stream.counted = s.opts.Subtrees.All() && s.server.Snapshot != "" && !mutate.NoGapCheck
	return nil
}

// subscribe subscribes and waits until the subscriptions are in force, so that the
// client receives everything that the server publishes from then on. Otherwise updates
// between the snapshot and the subscription would be missing, and a client of subtrees
// could not detect that.
//
// A publisher of this package confirms subscriptions. With others the first HUGZ is the
// sign: its subscription is sent last, and the server handles them in order. With one
// subtree, a KVPUB is a sign too.
func (s *session) subscribe() error {
	f := s.owner
	for _, spec := range f.opts.Subtrees.List {
		if err := s.sub.Subscribe(spec); err != nil {
			return err
		}
	}
	if !f.opts.Subtrees.All() && f.opts.Dialect.Full {
		if err := s.sub.Subscribe("HUGZ"); err != nil {
			return err
		}
	}
	switch {
	case s.ours || s.confirms:
		s.watchdog.expect(0, f.opts.SyncTimeout) // connecting may have taken most of it
		return s.sub.WaitSubscribed(s.ctx)
	case !f.opts.Dialect.Full:
		return wire.AwaitSubscribed(s.ctx, s.sub, f.opts.HeartbeatTimeout >= 0, f.opts.SyncTimeout)
	}
	return s.firstMessage()
}

// firstMessage waits for a message that shows that the subscriptions are in force.
func (s *session) firstMessage() error {
	f := s.owner
	ctx := s.ctx
	if f.opts.HeartbeatTimeout < 0 {
		// This server sends no HUGZ, so the wait ends after SyncTimeout.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.opts.SyncTimeout)
		defer cancel()
		s.watchdog.expect(0, 0)
	} else {
		s.watchdog.expect(0, f.opts.SyncTimeout)
	}
	for {
		if err := s.sub.RecvBatch(ctx, (*sockets.Batch)(&s.batch)); err != nil {
			return s.ctx.Err() // nil if only SyncTimeout is over
		}
		// KVPUBs that arrive this early are older than the snapshot, which
		// contains them.
		if len(f.opts.Subtrees.List) == 1 || hasHUGZ(&s.batch) {
			return nil
		}
	}
}

// hasHUGZ reports whether a batch contains a HUGZ.
func hasHUGZ(b *hooks.Batch) bool {
	for i, span := range b.Spans() {
		if span.Tag == hugzTag && isCommand(b.Message(i), kvmsg.KeyHUGZ) {
			return true
		}
	}
	return false
}
