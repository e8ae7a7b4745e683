package sockets

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// socket is the engine that all socket types share: endpoints, pipes, and
// shutdown.
//
// Lock order: Poller.mu before socket.mu before a pattern's own mutex before
// Outbox.mu or Inbox.mu before watch.mu; conn.mu last, after any of them and
// after listener.mu. No lock is held while waiting, or while calling the
// monitor or an Owner's Release.
type socket struct {
	// Immutable.
	kind    zmtp.SocketType
	pattern pattern
	ctx     context.Context // ends when the socket is closed for good
	cancel  context.CancelFunc
	closing chan struct{} // closed at the beginning of Close
	shut    atomic.Bool   // set at the beginning of Close, for code that only polls

	settings settings

	lingering context.Context    // ends when Close stops waiting for queued messages
	hurry     context.CancelFunc // ends lingering
	hurried   atomic.Bool        // messages were left when lingering ended

	withdraws      bool          // over inproc, the end of a connection drops messages that its peer has not received
	cookieLifetime time.Duration // of CURVE servers; 0, except in tests, for the default

	lull lull // between messages that senders write themselves; see writer.direct

	retiring atomic.Bool // the timer is running
	retirer  *time.Timer // ends writers that have slept for long; guarded by mu

	admission  admission
	incomplete incomplete
	total      total

	places atomic.Uint64 // the last pipe.place assigned
	crowd  crowd         // how many peers are connected

	in     queue.Inbox
	choose func() (m queue.Single, skip int, err error) // of a REQ or REP, its next message; see take
	term   time.Duration                                // loanTerm, except in tests
	slack  int                                          // behindBytes, except in tests

	wg sync.WaitGroup // listeners, dialers and connections

	mu        sync.Mutex
	closed    bool
	ended     chan struct{} // closed at the end of Close
	last      string
	listeners map[string]*listener
	dialers   map[string][]*dialer // usually one per endpoint; see connectsOnce
	pipes     map[*pipe]struct{}
}

func (s *socket) init(kind zmtp.SocketType, opts Options, p pattern) error {
	o, err := opts.inEffect(kind)
	if err != nil {
		return err
	}
	s.kind, s.pattern = kind, p
	given := opts.clone()
	s.settings.given.Store(&given)
	s.settings.store(&o)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.closing, s.ended = make(chan struct{}), make(chan struct{})
	s.lingering, s.hurry = context.WithCancel(context.Background())
	s.admission.init(&o)
	s.incomplete.init(&o)
	s.total.socket = s
	s.total.set(o.SendTotalBytes)
	s.in.Init(o.recvLimits(), o.RecvTotalBytes, s.conflates())
	s.term, s.slack = loanTerm, behindBytes
	s.listeners = map[string]*listener{}
	s.dialers = map[string][]*dialer{}
	s.pipes = map[*pipe]struct{}{}
	return nil
}

// made returns a new socket, or nil if it could not be initialized.
func made[S any](s *S, err error) (*S, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// dropFrom removes v from the values of a key, and reports whether it was among
// them.
func dropFrom[V comparable](m map[string][]V, key string, v V) bool {
	i := slices.Index(m[key], v)
	if i < 0 {
		return false
	}
	if m[key] = slices.Delete(m[key], i, i+1); len(m[key]) == 0 {
		delete(m, key)
	}
	return true
}

// isClosed reports whether a channel that carries no values is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// LastEndpoint returns the endpoint most recently bound or connected. For a
// bound endpoint it contains the actual address and port, such as
// "tcp://127.0.0.1:5555"; for a connected one it is the text given to Connect.
// It is empty if there is none.
func (s *socket) LastEndpoint() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// report passes an event to the monitor, if there is one.
func (s *socket) report(e Event) {
	if monitor := s.opts().Monitor; monitor != nil {
		monitor(e)
	}
}

// enter lists an established pipe. It reports false if the socket is closed.
func (s *socket) enter(p *pipe) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	// While the socket lingers, a connection may still be established, to write
	// the messages queued for it.
	if s.closed && (s.ctx.Err() != nil || !p.lasting) {
		return false
	}
	s.pipes[p] = struct{}{}
	if !p.lasting {
		p.out.SetLimits(s.sendLimits(s.opts())) // they may have changed since it was made
	}
	return true
}

// leave removes a pipe that will not be used again. The messages received on it
// stay available to the application.
func (s *socket) leave(p *pipe) {
	s.mu.Lock()
	delete(s.pipes, p)
	s.mu.Unlock()
	p.out.End()
	s.pattern.removed(p)
}

// CloseContext closes the socket like Close but stops waiting when the context
// is done: it then drops the messages that are still queued and returns the
// context's error. This also ends the wait of a Close that is already in
// progress. With [LingerForever] only the context limits the wait. Otherwise
// [Options.Linger] may end the wait earlier, in which case CloseContext returns
// nil.
func (s *socket) CloseContext(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.hurry)
	defer stop()
	if err := s.Close(); err != nil {
		return err
	}
	if s.hurried.Load() {
		return ctx.Err()
	}
	return nil
}

// Close closes the socket. It stops listening, waits until the queued messages
// are written, closes all connections, and returns when all goroutines of the
// socket have ended. Calls in progress on the socket return ErrClosed.
//
// [Options.Linger] limits the wait for queued messages. By default Close waits
// for each peer until it has taken its messages or has taken nothing for one
// second, and for at most 30 seconds. Messages that are not written by then are
// dropped. CloseContext limits the wait by a context.
//
// Close always returns nil. Further calls wait until the first one returns.
func (s *socket) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.ended
		return nil
	}
	s.closed = true
	defer close(s.ended)
	s.shut.Store(true)
	s.stopRetiring()
	close(s.closing)
	listeners := s.listeners
	s.listeners = map[string]*listener{}
	s.mu.Unlock()

	for _, p := range s.list() {
		p.out.Seal() // a Send that does not look whether the socket is closed is refused
	}
	s.in.Close()
	for _, l := range listeners {
		l.close()
	}
	if s.opts().Linger >= 0 {
		s.linger()
	}
	// Outgoing connections end with the context, accepted ones by their
	// listener. Both know a connection from the start, unlike pipes.
	s.cancel()
	for _, l := range listeners {
		l.disconnect()
	}
	s.wg.Wait()
	s.hurry()
	s.in.Discard()
	s.report(Event{Kind: EventMonitorStopped})
	return nil
}

// list returns the current pipes.
func (s *socket) list() []*pipe {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.pipes))
}

// open returns ErrClosed if the socket is closed, and nil otherwise.
func (s *socket) open() error {
	if s.shut.Load() {
		return ErrClosed
	}
	return nil
}

// maxMessage returns the maximum size of a message received on a connection with
// the given options, in bytes on the wire.
func (s *socket) maxMessage(o *Options) int64 {
	return min(o.MaxMessageSize, s.pattern.traits().maxMessage)
}

// check returns an error if the frames cannot be sent as a message, or the
// socket is closed.
func (s *socket) check(frames [][]byte) error {
	if len(frames) == 0 {
		return ErrNoFrames
	}
	var size int64
	for _, f := range frames {
		size += int64(zmtp.FrameSize(len(f)))
	}
	if size > s.settings.maxMessage.Load() {
		return ErrTooLarge
	}
	return s.open()
}
