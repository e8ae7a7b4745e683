package chp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/replica"
	"clustermap/chp/internal/subtree"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	netlink "clustermap/internal/link"
	"clustermap/internal/mutate"
	"clustermap/internal/timer"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Errors that end a session. Together with those of client_errors.go, *GapError and the
// errors of sockets they decide which server is tried next.
var (
	errNotCHP    = errors.New("chp: the server's answer is not CHP")
	errOvertaken = errors.New("chp: the server did not answer, and another one did")
)

// session is one connection to one server, from connecting to its first fault: a SUB
// and a DEALER socket, and a PUB socket if the client writes. The sockets connect once.
// When one connection breaks, the session ends with the other two, and with everything
// that it knows about sequences and about updates that were sent through it.
//
//	connect    all handshakes, bounded by SyncTimeout
//	subscribe  each subtree, then HUGZ; wait until the subscriptions are in force
//	join       ICANHAZ; KVSYNCs make the new state, with the KVPUBs that arrive meanwhile
//	follow     the new state replaces the old one, KVPUBs are applied as they arrive
//
// After the snapshot the DEALER socket stays open if the server is of this package,
// which reports refused updates on it.
//
// Goroutines: begin runs in one of its own (see attempts) and follow in the client's.
// The watchdog runs beside them, and during join a goroutine that fetches the snapshot.
// These two have ended when end returns.
type session struct {
	client *Client
	index  int // of the server in ClientOptions.Servers
	server address
	ctx    context.Context
	fail   context.CancelCauseFunc

	sub             *sockets.Sub
	dealer          *sockets.Dealer
	uplink          *uplink                      // nil if the client has not written; created under writer.mu while ACTIVE
	host            *netlink.Host                // where all connections go; nil with ClientOptions.Dial
	first           atomic.Pointer[sockets.Peer] // of the connection that was established first
	openings        chan opening                 // one for each socket
	over            chan struct{}                // closed when the session has ended and nothing is sent through it
	ours            bool                         // the server is of this package
	dialect         *wire.Session                // converts messages of other Clone models
	confirms        bool                         // the publisher confirms subscriptions
	reportsRefusals bool                         // the server reports refused updates
	maxValue        int                          // largest value that the server accepts, in bytes; 0 if unknown
	generation      uint64                       // see wire.Client
	requests        subtree.Set                  // the subtrees to request
	deadlines       *timer.Deadlines             // of the keys that the server sent
	watchdog        *watchdog
	answered        atomic.Bool // a handshake has succeeded
	joined          atomic.Bool // the snapshot is complete
	unneeded        atomic.Bool // the snapshot connection is no longer needed

	running sync.WaitGroup
	failure error // error of begin

	applied atomic.Pointer[ledger.Reply] // the server's first reply, or nil

	arriving int64 // bytes of the snapshots so far; owned by the reader of their connection

	// Owned by run.
	batch     hooks.Batch
	stream    *stream
	replica   *replica.Map
	resyncing *time.Timer // ends the session because of a gap
	fresh     bool        // the server's map is new and empty; set by fetch
	kept      int         // keys of the old state that were kept because of fresh
	active    time.Time   // when the session became ACTIVE
	arrived   int64       // bytes of updates
}

// opening is the result of connecting a socket.
type opening struct {
	collector bool
	peer      *sockets.Peer
	err       error // the collector does not accept this client
}

// Bits of watchdog.heard.
const (
	earSubscriber uint32 = 1 << iota
	earSnapshot
)

// snapshotAhead limits the memory, in bytes, of messages of a snapshot that were received
// and not yet stored: so they are still in the cache, and the same memory is used again. A
// server of this package waits meanwhile. One on libzmq would drop messages.
const snapshotAhead = 1 << 20

// newSession returns a session that has not begun. Others at the same server are under
// way.
func (c *Client) newSession(index, others int) *session {
	s := &session{
		client: c, index: index, server: c.servers[index],
		openings: make(chan opening, 3), over: make(chan struct{}), watchdog: newWatchdog(), deadlines: new(timer.Deadlines),
	}
	s.dialect = c.dialect.NewSession()
	c.generation++
	s.generation = c.generation
	if c.opts.Dial == nil {
		s.host = netlink.NewHost(others)
	}
	s.ctx, s.fail = context.WithCancelCause(c.ctx)
	return s
}

// begin connects. The caller must call end afterwards, even after an error.
func (s *session) begin() error {
	if err := s.open(); err != nil {
		return err
	}
	s.running.Go(func() { s.watchdog.run(s.ctx, func() { s.fail(ErrSilent) }) })
	return s.cause(s.connect())
}

// follow fetches the snapshot and applies updates until the session fails. It returns
// how long the session was ACTIVE and why it ended: the cause of the context if there
// is one.
func (s *session) follow() (active time.Duration, err error) {
	defer s.end()
	err = s.cause(s.run())
	if !s.active.IsZero() {
		active = time.Since(s.active)
	}
	return active, err
}

// end ends the session and waits for its goroutines.
func (s *session) end() {
	s.fail(nil)
	s.running.Wait()
	s.close()
	close(s.over)
	s.client.status.ended(s.index)
}

// cause returns the cause of the session's context, or err if the context has not
// ended.
func (s *session) cause(err error) error {
	if cause := context.Cause(s.ctx); cause != nil {
		return cause
	}
	return err
}

func (s *session) run() error {
	s.client.silent.Store(true)
	s.client.status.reached(s.index, PhaseSubscribing)
	s.client.setState(StateSyncing, s.server.name)
	if err := s.subscribe(); err != nil {
		return err
	}
	s.client.status.reached(s.index, PhaseSnapshot)
	if err := s.join(); err != nil {
		return err
	}
	s.client.status.reached(s.index, PhaseActive)
	s.active = time.Now()
	return s.apply()
}

// socketOptions returns the options that all sockets of a session have.
func (s *session) socketOptions() sockets.Options {
	c := s.client
	o := sockets.Options{
		Security:         c.security(),
		ConnectTimeout:   c.opts.SyncTimeout,
		HandshakeTimeout: c.opts.SyncTimeout,
		Dial:             c.opts.Dial,
		Metadata:         wire.Client{ID: c.id, Generation: s.generation, Progress: c.progressEvery()}.Properties(),
	}
	if s.host != nil {
		o.Dial = s.host.Dial
	}
	if limit := c.opts.HeartbeatTimeout; limit > 0 {
		// Silence is detected within the limit: a PING follows each interval and
		// must be answered in the rest of the limit.
		o.HeartbeatInterval = max(limit/4, time.Millisecond)
		o.HeartbeatTimeout = max(limit-limit/4, time.Millisecond)
	}
	return o
}

// open creates the SUB and the DEALER socket. They never reconnect: messages that
// arrive after a reconnection could not be told from earlier ones.
func (s *session) open() error {
	c := s.client
	subscriber := &intake{ear: earSubscriber, heard: &s.watchdog.heard, silent: &c.silent, refused: &c.refused}
	snapshot := &intake{ear: earSnapshot, heard: &s.watchdog.heard, silent: &c.silent, refused: &c.refused}
	if c.subtrees.Exact() {
		subscriber.wanted = &c.subtrees // a subscription is a prefix: "/a/b" also matches "/a/bc"
	}
	if !c.subtrees.All() {
		snapshot.wanted = &c.subtrees
	}
	options := s.socketOptions()
	options.RecvHWM, options.Linger, options.ReconnectInterval = sockets.Unlimited, sockets.LingerNone, sockets.ReconnectNever
	options.MaxMessageSize = min(maxMaxValueSize, c.opts.MaxMapBytes) + maxOverhead
	options.Monitor = s.monitorSubscriber
	updates := s.dialect.Prepare(subscriber.updates, c.refused.add)
	if mutate.Reconnect {
		options.ReconnectInterval = 0
	}
	sub, err := sockets.NewSub(options)
	if err != nil {
		return err
	}
	options.Monitor, options.ReconnectInterval = s.monitorSnapshot, sockets.ReconnectNever
	dealer, err := sockets.NewDealer(options)
	if err != nil {
		_ = sub.Close() // closing a socket does not fail
		return err
	}
	records := s.dialect.Prepare(snapshot.snapshot, c.refused.add)
	hooks.Prepare(sub, updates)
	hooks.Prepare(dealer, func(b *hooks.Batch) {
		if s.standsBy(b) {
			return
		}
		if s.joined.Load() {
			s.hear(b)
			return
		}
		if s.overflows(b) {
			return
		}
		s.learn(b)
		records(b)
	})
	hooks.Scan(sub, scanUpdate)
	hooks.Scan(dealer, scanUpdate)
	s.sub, s.dealer = sub, dealer
	return nil
}

func (s *session) close() {
	if s.resyncing != nil {
		s.resyncing.Stop()
	}
	if s.uplink != nil {
		s.uplink.close()
	}
	if s.sub != nil {
		_ = s.sub.Close() // closing a socket does not fail
		_ = s.dealer.Close()
	}
	s.batch.Release()
}

// overflows ends the session if the snapshots have more bytes than a map that the client may
// have, twice, and reports whether they do. What arrives need not make the map larger: a
// server may send one key for ever, or what is not CHP. It runs in the goroutine that reads
// the connection.
func (s *session) overflows(b *hooks.Batch) bool {
	s.arriving += int64(buf.Extent(b.Spans()))
	if (s.arriving-snapshotAhead)/2 <= s.client.opts.MaxMapBytes {
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
		if reply, ok := ledger.ParseReply(b.Message(i)); ok {
			s.client.writer.Reply(s, reply)
		} else if id, reason, ok := wire.ParseRefusal(b.Message(i)); ok {
			s.client.writer.Refused(s, id, reason)
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
		} else if reply, ok := ledger.ParseReply(m); ok {
			s.applied.CompareAndSwap(nil, reply)
		}
	}
	b.SetSpans(kept)
}

func (s *session) monitorSubscriber(e sockets.Event) {
	if mutate.Reconnect && s.joined.Load() {
		return
	}
	s.watch(e, false)
}

// monitorSnapshot is the monitor of the snapshot connection, which the session closes
// after the snapshot if the server is of another implementation.
func (s *session) monitorSnapshot(e sockets.Event) {
	if !s.unneeded.Load() {
		s.watch(e, false)
	}
}

// watch handles monitor events. It is called from the goroutines of the sockets.
func (s *session) watch(e sockets.Event, collector bool) {
	switch e.Kind {
	case sockets.EventHandshakeSucceeded:
		if err := s.recognize(e.Peer); err != nil {
			s.fail(err) // before the other end can be heard, or sent anything
			return
		}
		s.answered.Store(true)
		s.opened(opening{collector: collector, peer: e.Peer})
	case sockets.EventConnectFailed, sockets.EventHandshakeFailed:
		s.fail(fmt.Errorf("%w: %w", ErrUnreachable, e.Err))
	case sockets.EventDisconnected:
		if errors.Is(e.Err, zmtp.ErrTooLarge) {
			s.fail(fmt.Errorf("%w: %w", ErrMapTooLarge, e.Err)) // no key could have that value
		}
		s.fail(fmt.Errorf("%w: %w", ErrDisconnected, e.Err))
	}
}

// recognize returns a *MixedError if a connection has reached another server than the
// first one: there can be several behind one name. Servers that do not say which they are
// cannot be told apart.
func (s *session) recognize(peer *sockets.Peer) error {
	if s.first.CompareAndSwap(nil, peer) {
		return nil
	}
	if first := s.first.Load(); wire.InstanceOf(first) != wire.InstanceOf(peer) {
		return &MixedError{s.server.name, first.RemoteAddr(), peer.RemoteAddr()}
	}
	return nil
}

// opened stores the result of connecting a socket. A socket connects once, so there is
// room for all results.
func (s *session) opened(o opening) {
	if s.joined.Load() && o.err != nil {
		s.fail(&CollectorError{s.server.name, o.err}) // connect has returned
		return
	}
	s.openings <- o
}

// connect connects the sockets and waits for their handshakes.
func (s *session) connect() error {
	s.watchdog.expect(0, s.client.opts.SyncTimeout)
	waiting := 1
	if err := s.sub.Connect(s.server.publisher); err != nil {
		return err
	}
	if s.server.snapshot != "" {
		if err := s.dealer.Connect(s.server.snapshot); err != nil {
			return err
		}
		waiting++
	}
	if s.client.writer.Writing() {
		if err := s.openUplink(); err != nil {
			return err
		}
		waiting++
	}
	s.ours = s.client.dialect.Full
	var unfit, unlike error
	for range waiting {
		select {
		case o := <-s.openings:
			switch {
			case o.err != nil:
				unfit = o.err
			case !o.collector:
				confirms, err := wire.Meets(s.client.opts.Model, o.peer)
				if err != nil {
					unlike = err
				}
				s.confirms = s.confirms || confirms
				s.ours = s.ours && strings.HasPrefix(wire.ProductOf(o.peer), "clustermap/")
				s.reportsRefusals = s.reportsRefusals || wire.ReportsRefusals(o.peer)
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
		return &CollectorError{s.server.name, unfit}
	}
	if s.uplink != nil {
		if err := s.uplink.mirror(); err != nil {
			return err
		}
		if err := s.uplink.Ready(); err != nil {
			return err
		}
	}
	s.requests = s.client.subtrees
	if s.ours {
		err := s.dealer.SetOptions(func(o *sockets.Options) { o.RecvHWMBytes = snapshotAhead })
		if err != nil {
			return err
		}
	} else {
		s.requests = subtreesAt(s.client.dialect, &s.client.subtrees)
	}
	s.stream = newStream(&s.requests, s.ours)
	// Jumps are checked only if the client subscribes to the whole map, and if there
	// are snapshots to close a gap with.
	s.stream.counted = s.client.subtrees.All() && s.server.snapshot != "" && !mutate.NoGapCheck
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
	c := s.client
	for _, spec := range c.subtrees.List {
		if err := s.sub.Subscribe(spec); err != nil {
			return err
		}
	}
	if !c.subtrees.All() && c.dialect.Full {
		if err := s.sub.Subscribe("HUGZ"); err != nil {
			return err
		}
	}
	switch {
	case s.ours || s.confirms:
		s.watchdog.expect(0, c.opts.SyncTimeout) // connecting may have taken most of it
		return s.sub.WaitSubscribed(s.ctx)
	case !c.dialect.Full:
		return s.likely()
	}
	return s.firstMessage()
}

// firstMessage waits for a message that shows that the subscriptions are in force.
func (s *session) firstMessage() error {
	c := s.client
	ctx := s.ctx
	if c.opts.HeartbeatTimeout < 0 {
		// This server sends no HUGZ, so the wait ends after SyncTimeout.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.opts.SyncTimeout)
		defer cancel()
		s.watchdog.expect(0, 0)
	} else {
		s.watchdog.expect(0, c.opts.SyncTimeout)
	}
	for {
		if err := s.sub.RecvBatch(ctx, (*sockets.Batch)(&s.batch)); err != nil {
			return s.ctx.Err() // nil if only SyncTimeout is over
		}
		// KVPUBs that arrive this early are older than the snapshot, which
		// contains them.
		if len(c.subtrees.List) == 1 || hasHUGZ(&s.batch) {
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
