package chp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/sockets"
)

// Why a session ends. Together with *GapError and the errors of sockets they
// decide which server comes next.
var (
	errSilent       = errors.New("chp: the server is silent")
	errDisconnected = errors.New("chp: the connection to the server broke")
	errUnreachable  = errors.New("chp: the server cannot be reached")
	errNotCHP       = errors.New("chp: the server's answer is not CHP")
)

// session is one connection to one server, from connecting to its first fault:
// a SUB and a DEALER socket, which never connect a second time. What a session
// learns about sequences ends with it.
//
//	connect    both handshakes, bounded by SyncTimeout
//	subscribe  each subtree, then HUGZ; wait until that is in force
//	join       ICANHAZ; KVSYNCs make the new state, KVPUBs are kept beside it
//	follow     the new state is swapped in, KVPUBs are applied as they come
//
// Goroutines: run in the client's; the watchdog; during join, one that fetches
// the snapshot. All have ended when run returns.
type session struct {
	client *Client
	index  int // of the server in ClientOptions.Servers
	server address
	ctx    context.Context
	fail   context.CancelCauseFunc

	sub       *sockets.Sub
	dealer    *sockets.Dealer
	connected chan *sockets.Peer // one of each socket
	ours      bool               // the server announced itself as one of ours
	requests  subtrees           // what it is asked for
	deadlines *deadlines         // of the keys that the server sends
	watchdog  *watchdog
	joined    atomic.Bool // the snapshot connection is no longer needed

	// Owned by run.
	batch  sockets.Batch
	stream *stream
	store  *store
	fresh  bool      // the server's map is new and empty; set by fetch
	kept   int       // keys of the state before that were kept for that reason
	active time.Time // when the session became ACTIVE
}

// Bits of watchdog.heard.
const (
	earSubscriber uint32 = 1 << iota
	earSnapshot
)

// runSession runs a session with a server to its end. It returns for how long
// it was ACTIVE, and why it ended: the context's cause if that ended it.
func (c *Client) runSession(index int) (active time.Duration, err error) {
	s := &session{client: c, index: index, server: c.servers[index], connected: make(chan *sockets.Peer, 2), watchdog: newWatchdog(), deadlines: &deadlines{}}
	s.ctx, s.fail = context.WithCancelCause(c.ctx)
	defer s.fail(nil)
	if err := s.open(); err != nil {
		return 0, err
	}
	defer s.close()

	var running sync.WaitGroup
	defer running.Wait()
	defer s.fail(nil)
	running.Go(func() { s.watchdog.run(s.ctx, func() { s.fail(errSilent) }) })

	err = s.run()
	if cause := context.Cause(s.ctx); cause != nil {
		err = cause // err is only the cancellation that it led to
	}
	if !s.active.IsZero() {
		active = time.Since(s.active)
	}
	return active, err
}

func (s *session) run() error {
	if err := s.connect(); err != nil {
		return err
	}
	s.client.enter(StateSyncing, s.server.name)
	if err := s.subscribe(); err != nil {
		return err
	}
	if err := s.join(); err != nil {
		return err
	}
	s.active = time.Now()
	return s.follow()
}

// open makes the sockets. They are told never to dial again: what arrives
// after a reconnection could not be told from what came before it.
func (s *session) open() error {
	c := s.client
	subscriber := &intake{ear: earSubscriber, heard: &s.watchdog.heard, refused: &c.refused}
	snapshot := &intake{ear: earSnapshot, heard: &s.watchdog.heard, refused: &c.refused}
	if c.subtrees.exact() {
		subscriber.wanted = &c.subtrees // a subscription is a prefix, and brings "/a/bc" for "/a/b"
	}
	if !c.subtrees.all() {
		snapshot.wanted = &c.subtrees
	}
	options := sockets.Options{
		RecvHWM:           -1,
		Linger:            -1,
		ReconnectInterval: -1,
		Security:          c.opts.Security,
		HandshakeTimeout:  c.opts.SyncTimeout,
		MaxMessageSize:    int64(c.opts.MaxValueSize) + maxOverhead,
		Metadata:          map[string]string{propertyCHP: announcement},
		Monitor:           s.monitorSubscriber,
		Prepare:           subscriber.updates,
	}
	var err error
	if s.sub, err = sockets.NewSub(options); err != nil {
		return err
	}
	options.Monitor, options.Prepare = s.monitorSnapshot, snapshot.snapshot
	if s.dealer, err = sockets.NewDealer(options); err != nil {
		_ = s.sub.Close() // closing a socket does not fail
	}
	return err
}

func (s *session) close() {
	_ = s.sub.Close() // closing a socket does not fail
	_ = s.dealer.Close()
	s.batch.Release()
}

// monitorSnapshot is told of the snapshot connection, which is closed as soon
// as it has served its purpose.
func (s *session) monitorSnapshot(e sockets.Event) {
	if !s.joined.Load() {
		s.monitorSubscriber(e)
	}
}

// monitorSubscriber is called from the goroutines of the socket.
func (s *session) monitorSubscriber(e sockets.Event) {
	switch e.Kind {
	case sockets.HandshakeSucceeded:
		s.connected <- e.Peer // has room for the only two there can be
	case sockets.ConnectFailed, sockets.HandshakeFailed:
		s.fail(fmt.Errorf("%w: %w", errUnreachable, e.Err))
	case sockets.Disconnected:
		s.fail(fmt.Errorf("%w: %w", errDisconnected, e.Err))
	}
}

// connect connects both sockets and waits for their handshakes.
func (s *session) connect() error {
	s.watchdog.expect(0, s.client.opts.SyncTimeout)
	if err := s.dealer.Connect(s.server.snapshot); err != nil {
		return err
	}
	if err := s.sub.Connect(s.server.publisher); err != nil {
		return err
	}
	s.ours = true
	for range 2 {
		select {
		case peer := <-s.connected:
			s.ours = s.ours && strings.HasPrefix(peer.Property(propertyCHP), "clustermap/")
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
	s.requests = s.client.subtrees
	if !s.ours {
		s.requests = s.client.subtrees.plain()
	}
	s.stream = newStream(&s.requests, s.ours)
	return nil
}

// subscribe subscribes, and returns when the subscriptions are in force: what
// the server publishes from then on arrives. Otherwise updates between the
// snapshot and the subscription would be missing, and with subtrees nobody
// could tell.
//
// A publisher of ours says so itself. From another one the first HUGZ is the
// sign: its subscription went out last, and the server takes them in order.
// If there is one subtree, a KVPUB of it is as good.
func (s *session) subscribe() error {
	c := s.client
	for _, spec := range c.subtrees.list {
		if err := s.sub.Subscribe(spec); err != nil {
			return err
		}
	}
	if !c.subtrees.all() {
		if err := s.sub.Subscribe("HUGZ"); err != nil {
			return err
		}
	}
	if s.ours {
		return s.sub.WaitSubscribed(s.ctx)
	}
	return s.firstMessage()
}

// firstMessage waits for a sign that the subscriptions are in force.
func (s *session) firstMessage() error {
	c := s.client
	ctx := s.ctx
	if c.opts.HeartbeatTimeout < 0 {
		// This server is known to send no HUGZ: time is all there is to go by.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.opts.SyncTimeout)
		defer cancel()
		s.watchdog.expect(0, 0)
	} else {
		s.watchdog.expect(0, c.opts.SyncTimeout)
	}
	for {
		if err := s.sub.RecvBatch(ctx, &s.batch); err != nil {
			return s.ctx.Err() // nil if only our own time is up
		}
		// KVPUBs that come this early are older than the snapshot to come: it
		// contains them.
		if len(c.subtrees.list) == 1 || hasHUGZ(&s.batch) {
			return nil
		}
	}
}

// hasHUGZ says whether a batch contains a HUGZ.
func hasHUGZ(b *sockets.Batch) bool {
	for i, span := range b.Spans() {
		if span.Tag == hugzTag && isCommand(b.Message(i), keyHUGZ) {
			return true
		}
	}
	return false
}
