package chp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/collect"
	"clustermap/chp/internal/confirm"
	"clustermap/chp/internal/member"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/partner"
	"clustermap/chp/internal/ports"
	"clustermap/chp/internal/rights"
	"clustermap/chp/internal/snapshot"
	"clustermap/chp/internal/subtree"
	"clustermap/chp/internal/txn"
	"clustermap/chp/internal/wire"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/lograte"
	"clustermap/internal/mutate"
	"clustermap/internal/peerlog"
	"clustermap/sockets"
)

// Server is a CHP server (RFC 12): it owns the map, accepts updates from clients,
// numbers them, publishes them to all clients, and sends snapshots to those that join.
//
// The sequences of one run are consecutive. They begin at a number derived from the
// clock, so that a restarted server is ahead of everything that its clients have seen.
//
// All methods are safe for concurrent use.
type Server struct {
	reader

	opts ServerOptions
	log  *slog.Logger // never waits
	logs *lograte.Queue

	events *slog.Logger // what clients and administrators do: log and, with Audit, also that

	snapshots *snapshot.Server
	confirms  *confirm.Server
	router    *sockets.Router // P: snapshot requests and replies
	publisher *sockets.Pub    // P+1: KVPUB and HUGZ
	collector wire.Collector  // P+2: KVSET
	dialect   wire.Dialect
	ready     chan struct{}
	endpoints []Endpoints // of each element of sites; guarded by state

	sequencer order.Sequencer
	counts    counts
	peerLog   *peerlog.Log
	members   *collect.Clients // updates of clients
	handovers handovers
	admins    *admins
	rights    *rights.Peers // nil without Access
	accepted  *rights.Peers // nil without ServerOptions.Accepted
	shares    sync.Map      // *order.Share by *Role, of those with limits
	keys      sync.Mutex    // held while keys are replaced
	pairKeys  func(ServerKeys)
	pair      *partner.Pair  // nil if the server is not of a pair
	member    *member.Member // nil if it is not of a cluster

	local order.Local // updates of this process

	restored int64 // sequence of the last update from the log or Preload

	state  sync.Mutex
	phase  phase
	began  time.Time // to serve
	cancel context.CancelFunc
	ended  chan struct{}
}

// counts is what a server counts by itself.
type counts struct {
	refused refusals
	badAsks atomic.Uint64 // snapshot requests that were refused
	clients atomic.Int64  // connections of the publisher
}

// phase is the phase of a server's life. It never goes back.
type phase uint8

const (
	phaseNew phase = iota
	phaseListening
	phaseServing
	phaseClosed
)

// ListenError reports that a server could not listen on one of its endpoints. It wraps the
// network's error.
type ListenError struct {
	Endpoint string
	Err      error
}

func (e *ListenError) Error() string {
	return fmt.Sprintf("chp: cannot listen on %s: %v", e.Endpoint, e.Err)
}

// Unwrap returns Err.
func (e *ListenError) Unwrap() error { return e.Err }

// MarshalText returns the text of Error.
func (e *ListenError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// NewServer returns a server that does not listen yet: Listen, or Serve, reports a port
// that is in use. If several options are invalid,
// the error reports all of them. With Log or Preload it returns when the map is filled.
func NewServer(o ServerOptions) (_ *Server, err error) {
	if o.Log != nil {
		defer func() {
			if err != nil {
				_ = o.Log.Close() // the first error counts
			}
		}()
	}
	o, err = o.withDefaults()
	if err != nil {
		return nil, err
	}
	logs := lograte.NewQueue(o.Logger.Handler())
	s := &Server{reader: reader{subtrees: subtree.New(nil)}, opts: o.withoutSecrets(), dialect: wire.DialectOf(o.Model), log: logs.Logger(), events: logs.Logger(), logs: logs, ready: make(chan struct{}), ended: make(chan struct{}), peerLog: peerlog.New(logs.Logger())}
	if o.Audit != nil {
		s.events = slog.New(tee{s.events.Handler(), o.Audit.Handler()})
		s.peerLog = peerlog.New(s.events)
	}
	instance := wire.NewID()
	s.admins = newAdmins(&o)
	if o.Access != nil {
		s.restrict(&o)
	}
	if o.Accepted != nil {
		s.accepted = rights.NewPeers(s.stillAccepted)
	}
	begin, err := fill(&o, s.sequencer.Committed)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = begin.journal.Close() // the first error counts
		}
	}()
	s.restored = begin.state.Last()
	if o.Cluster != nil {
		s.member = newMember(s, &o, begin.journal)
	}
	announce := wire.Server{Instance: instance, Model: o.Model, MaxValue: o.MaxValueSize, History: o.History}.Properties()
	if o.Pair != nil {
		partner.Announce(announce)
	}
	s.router, err = sockets.NewRouter(sockets.Options{
		SendHWM: sockets.Unlimited, SendHWMBytes: snapshotWindow,
		RecvHWM: snapshot.MaxRequests, RecvTotalBytes: maxRequestsBytes, MaxMessageSize: maxRequestSize, MaxIncompleteBytes: maxRequestsBytes,
		MaxConnections: o.MaxClients, Operator: s.operator, Security: o.Security, HandshakeTimeout: o.HandshakeTimeout, Listen: o.Listen, Linger: closeLinger, Metadata: announce,
		Monitor: s.watchConnections("snapshot"),
	})
	if err != nil {
		return nil, err
	}
	s.members = collect.New(collect.Options{
		Order: &s.sequencer, Full: s.dialect.Full, MaxValue: o.MaxValueSize, Refused: s.counts.refused.add, Log: s.peerLog,
		Rights: s.rights, Share: s.share, Owner: s.leaseOwner,
		Router: s.router, Timeout: o.SnapshotTimeout, Instance: instance,
		Alone: func() {
			hooks.Alone(s.publisher)
			hooks.Alone(s.router)
		},
		Relay: relayOf(s.member),
	})
	slow := sockets.PolicyDisconnect
	if mutate.DropSlow {
		slow = sockets.PolicyDrop
	}
	s.publisher, err = sockets.NewPub(sockets.Options{
		SendHWM: sockets.Unlimited, SendHWMBytes: o.SubscriberQueue, SendTotalBytes: o.SubscriberMemory, FullPolicy: slow,
		MaxMessageSize: maxRequestSize, MaxSubscriptions: maxSubscriptions, MaxSubscriptionBytes: maxSubscriptionBytes, MaxTopicSize: kvmsg.MaxKey, MaxIncompleteBytes: maxRequestsBytes,
		MaxConnections: o.MaxClients, Operator: s.operator, Security: o.Security, HandshakeTimeout: o.HandshakeTimeout, Listen: o.Listen, Linger: closeLinger, Metadata: announce,
		Monitor: s.watchConnections("publisher"),
	})
	if err != nil {
		return nil, err
	}
	if s.rights != nil {
		hooks.Admit(s.publisher, s.maySubscribe)
	}
	s.collector, err = s.dialect.NewCollector(sockets.Options{
		RecvHWM: sockets.Unlimited, RecvHWMBytes: collectorWindow, RecvTotalBytes: collectorTotal, MaxIncompleteBytes: collectorTotal,
		MaxMessageSize: int64(max(o.MaxValueSize, txn.MaxMessage)) + maxOverhead,
		MaxConnections: o.MaxClients, Operator: s.operator, Security: o.Security, HandshakeTimeout: o.HandshakeTimeout, Listen: o.Listen, Metadata: announce,
		Monitor: s.watchConnections("collector"),
	}, s.members.Prepare, s.counts.refused.add)
	if err != nil {
		return nil, err
	}
	hooks.Scan(s.collector, s.members.Scan)
	if s.rights != nil {
		hooks.Pace(s.collector, s.members.Pace)
	}
	confirms := confirm.Options{Order: &s.sequencer, Router: s.router, Publisher: s.publisher}
	orders := order.Options{
		State: begin.state, Live: &s.live, Journal: begin.journal, Linked: begin.linked, Window: begin.window,
		Publisher: s.dialect.NewPublisher(s.publisher), WatchQueue: o.WatchQueue, MaxBytes: o.MaxMapBytes, Refused: s.counts.refused.add,
		Stamp: o.Stamp, Owners: s.rights != nil,
	}
	if o.Pair != nil {
		orders.EarlyTimeout = o.Pair.Timeout
	}
	if s.member != nil {
		orders.Cluster, orders.Resend, confirms.Index = true, s.member.Resend, s.member.Index
	}
	s.confirms = confirm.New(confirms)
	s.sequencer.Init(orders)
	s.local.Init(&s.sequencer, s.newPacer())
	if s.member != nil {
		s.local.Elsewhere = s.member
	}
	s.snapshots = snapshot.New(snapshot.Options{
		Live: &s.live, Fresh: begin.base, Since: s.sequencer.Since, Retained: begin.window.Bound(), Progress: s.members.Reply, Router: s.router, Memory: o.SnapshotMemory, Timeout: o.SnapshotTimeout,
	})
	if o.Pair != nil {
		s.pair = newPair(s, o)
	}
	if s.member != nil {
		node, err := o.Cluster.Open(s.member)
		if err != nil {
			return nil, err
		}
		s.member.Attach(node)
	}
	return s, nil
}

// operator reports whether a peer on another machine gets a place when all of MaxClients
// are taken: an administrator, or the other server of a pair.
func (s *Server) operator(peer *sockets.Peer) bool { return s.admins.check(peer) == nil }

// Listen binds the endpoints, and the state endpoint of a pair. If one of them is in
// use, it binds none and returns a *ListenError.
func (s *Server) Listen(ctx context.Context) error {
	s.state.Lock()
	defer s.state.Unlock()
	switch s.phase {
	case phaseNew:
	case phaseClosed:
		return ErrClosed
	default:
		return nil
	}
	listener := ports.Listener{Sockets: ports.Three[ports.Socket]{s.router, s.publisher, s.collector}}
	listener.Places[0], listener.Places[1], listener.Places[2] = s.dialect.Ports()
	bound, at, err := listener.Bind(ctx, s.opts.sites())
	if err != nil {
		return &ListenError{at, err}
	}
	if s.pair != nil {
		if err := s.pair.Listen(ctx); err != nil {
			listener.Unbind(bound)
			return &ListenError{s.opts.Pair.State, err}
		}
	}
	for _, b := range bound {
		s.endpoints = append(s.endpoints, Endpoints{b[0], b[1], b[2]})
	}
	s.phase = phaseListening
	return nil
}

// Serve serves until the context ends or Close is called. It returns nil after all
// goroutines have ended; it also returns nil if the context had already ended. It calls
// Listen first if that was not done. A Server serves only once: while it serves,
// another call returns ErrServing, and afterwards ErrClosed.
func (s *Server) Serve(ctx context.Context) error {
	if err := s.Listen(ctx); err != nil {
		_, failed := s.closeUnserved()
		if ctx.Err() != nil && !errors.Is(err, ErrClosed) {
			return failed // the context ended before serving began
		}
		return errors.Join(err, failed)
	}
	s.state.Lock()
	switch s.phase {
	case phaseListening:
	case phaseServing:
		s.state.Unlock()
		return ErrServing
	default:
		s.state.Unlock()
		return ErrClosed
	}
	s.phase, s.began = phaseServing, time.Now()
	ctx, s.cancel = context.WithCancel(ctx)
	// The server continues to serve during a handover.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	s.state.Unlock()
	defer close(s.ended)

	if s.pair == nil && s.member == nil { // otherwise Lead does it
		s.live.Now().Deadlines.Spare(s.restored, s.opts.ExpiryGrace)
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.members.Run(running, s.collector, s.newPacer()) })
	wg.Go(func() { s.runClock(running) })
	wg.Go(func() { s.runRequests(running) })
	wg.Go(func() { s.snapshots.Run(running) })
	wg.Go(func() { s.runCheckpoints(running) })
	if s.rights != nil {
		wg.Go(func() { s.runAccess(running) })
	}
	var unpaired, unfit error // the errors with which the pair, and the part of the cluster, have ended
	if s.pair != nil {
		wg.Go(func() {
			if unpaired = s.pair.Run(running); running.Err() == nil {
				s.cancel()
			}
		})
	}
	failed := make(<-chan struct{})
	if s.member != nil {
		failed = s.member.Failed()
		wg.Go(func() { s.member.Run(running) })
	}
	close(s.ready)
	for _, e := range s.AllEndpoints() {
		s.log.Info("serving", "snapshot", e.Snapshot, "publisher", e.Publisher, "collector", e.Collector)
	}
	select {
	case <-ctx.Done():
	case <-s.sequencer.Journal().Failed():
		s.cancel()
	case <-failed:
		s.cancel()
		unfit = s.member.Err()
	}
	if s.pair != nil {
		s.pair.Shutdown()
	}
	s.transfer()
	stop()
	s.close()
	wg.Wait()
	s.snapshots.Wait()
	s.confirms.Wait()
	if s.pair != nil {
		s.pair.Close()
	}
	err := errors.Join(unpaired, unfit, s.sequencer.Journal().Close())
	if err != nil {
		s.log.Error("stopped", "error", err)
	} else {
		s.log.Info("stopped", "keys", s.Len(), "sequence", s.Sequence())
	}
	s.logs.Close()
	return err
}

// Close closes the server and waits for Serve to return, which returns the error of a log
// that has failed. Close itself returns that error if Serve was never called. Close may be
// called more than once.
func (s *Server) Close() error {
	closed, err := s.closeUnserved()
	if !closed {
		s.cancel()
		<-s.ended
	}
	return err
}

// closeUnserved closes a server that does not serve, and returns true and the error of
// its log. If Serve has begun it does nothing and returns false, because Serve closes the
// server. One lock covers the check and the change of phase, so that Serve cannot begin
// in between.
func (s *Server) closeUnserved() (closed bool, err error) {
	s.state.Lock()
	if s.cancel != nil {
		s.state.Unlock()
		return false, nil
	}
	again := s.phase == phaseClosed
	s.phase = phaseClosed
	s.state.Unlock()
	s.close()
	if s.pair != nil {
		s.pair.Close()
	}
	err = s.sequencer.Journal().Close()
	s.logs.Close()
	if again {
		err = nil // the first call has returned it
	}
	return true, err
}

// close closes the sockets, those for updates from clients first.
func (s *Server) close() {
	s.state.Lock()
	s.phase = phaseClosed
	s.state.Unlock()
	s.sequencer.Shut()
	_ = s.collector.Close() // closing a socket does not fail
	_ = s.publisher.Close()
	s.members.Close()
	_ = s.router.Close()
}

// Ready returns a channel that is closed when the server begins to serve.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Endpoints returns the endpoints on which the server listens: the first ones if it
// listens on several. They are empty before Listen.
func (s *Server) Endpoints() Endpoints {
	if all := s.AllEndpoints(); len(all) > 0 {
		return all[0]
	}
	return Endpoints{}
}

// AllEndpoints returns the endpoints of each element of ServerOptions.Endpoints, in the
// same order, with the actual ports and paths. There are none before Listen.
func (s *Server) AllEndpoints() []Endpoints {
	s.state.Lock()
	defer s.state.Unlock()
	return slices.Clone(s.endpoints)
}

// Durations counts how long events took: Counts[i] of them up to Bounds[i] and above the bound
// before, and the last of Counts above all bounds; and Sum altogether.
type Durations = snapshot.Times

// ServerStats holds a server's counters at one moment.
type ServerStats struct {
	Keys      int
	MapBytes  int64 // bytes of the keys, values and properties, as MaxMapBytes counts
	Sequence  int64
	Updates   uint64            // KVSETs accepted and published
	Repeated  uint64            // KVSETs that clients sent again after a fault although the server had them
	Expired   uint64            // keys deleted when their TTL ended
	Snapshots uint64            // snapshot requests answered
	Took      Durations         // of those, from the request until the last of the snapshot was queued
	Resumed   uint64            // clients that came back and got only what they had missed
	Retained  int64             // bytes that ServerOptions.RetainBytes bounds
	Refused   map[Reason]uint64 // messages refused, by reason
	Leases    int               // leases in the map
	Conflicts uint64            // conditional updates and transactions of which a condition did not hold
	TookOver  uint64            // times that this server of a pair was passive and became active
	BadAsks   uint64            // snapshot requests refused
	History   int64             // bytes of the versions that are kept, as HistoryBytes counts
	Lagged    uint64            // watches of Server.Watch that ended with ErrLagged

	Subscribers []sockets.PeerStats // connections of the publisher
	Collectors  []sockets.PeerStats // connections of the collector
}

// Stats returns the current counters. An update that a client or a watch has seen is
// counted.
func (s *Server) Stats() ServerStats {
	st := ServerStats{
		Snapshots: s.snapshots.Counted.Answered.Load(), Took: s.snapshots.Counted.Took.Times(), Resumed: s.snapshots.Counted.Resumed.Load(), BadAsks: s.counts.badAsks.Load(),
		Subscribers: s.publisher.Peers(), Collectors: s.collector.Peers(),
	}
	n := &s.sequencer.Counted
	s.sequencer.Between(func(now *order.Moment) { // a batch is published before it is counted
		st.Keys, st.MapBytes, st.Sequence = now.State.Store.Len(), int64(now.State.Store.LiveBytes()), now.State.Last()
		st.History = now.State.History.Bytes()
		st.Leases, _ = now.State.Leases.Len()
		st.Updates, st.Repeated, st.Expired = n.Updates.Load(), n.Repeated.Load(), n.Expired.Load()
	})
	_, st.Lagged = s.live.Watches()
	st.Retained = int64(s.sequencer.Retained())
	st.Refused = s.counts.refused.counts()
	st.Conflicts = n.Conflicts.Load()
	if s.pair != nil {
		st.TookOver = s.pair.TookOver()
	}
	return st
}

// fullest returns the fill level of the fullest queue, from 0 to 1: of the subscribers,
// or the part of the tail that was not yet sent to the other server.
func (s *Server) fullest() float64 {
	full := s.publisher.Fullest()
	if s.pair != nil {
		s.sequencer.Between(func(*order.Moment) { full = max(full, s.pair.Journal().Fill()) })
	}
	return full
}

// newPacer returns a pacer of updates or deletions.
func (s *Server) newPacer() *order.Pacer { return order.NewPacer(s.opts.SlowestIntake, s.fullest) }

// runClock does what the server does by itself.
func (s *Server) runClock(ctx context.Context) {
	s.sequencer.RunClock(ctx, order.Clock{
		Heartbeat: s.opts.HeartbeatInterval, Grace: s.opts.ExpiryGrace, Pace: s.newPacer(), Beat: s.peerLog.Flush, Log: s.log,
	})
}

// runCheckpoints writes checkpoints, and logs why it cannot.
func (s *Server) runCheckpoints(ctx context.Context) {
	failures := lograte.Failures()
	s.sequencer.RunCheckpoints(ctx, s.log, func(err error) {
		if due, _ := failures.Due("checkpoint", lograte.Cause(err), time.Now()); due {
			s.log.Error("checkpoint failed", "error", err)
		}
	})
}

// watchConnections returns a monitor for one port: it logs events that concern an
// operator, and records the client of each connection.
func (s *Server) watchConnections(port string) func(sockets.Event) {
	return func(e sockets.Event) {
		if !s.rights.Watch(e) || !s.accepted.Watch(e) {
			e.Peer.Disconnect(errNoRights)
		}
		s.members.Watch(e, port)
		switch {
		case port == "publisher":
			s.confirms.Watch(e)
		case e.Kind == sockets.EventDisconnected:
			s.confirms.Forget(e.Peer)
		}
		switch {
		case port == "publisher" && e.Kind == sockets.EventHandshakeSucceeded:
			s.counts.clients.Add(1)
		case port == "publisher" && e.Kind == sockets.EventDisconnected:
			s.counts.clients.Add(-1)
		case e.Kind == sockets.EventDisconnected && s.pair != nil:
			s.pair.Disconnected(e.Peer)
		case e.Kind == sockets.EventDisconnected && s.member != nil:
			s.member.Forget(e.Peer)
		}
		s.peerLog.Connection(e, port, port == "publisher") // each client has one publisher connection
	}
}
