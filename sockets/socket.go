package sockets

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/zmtp"
)

// socket is the engine that all socket types share: its endpoints, its pipes,
// and their end.
//
// Lock order: Poller.mu before socket.mu before a pattern's own mutex before
// outbox.mu or inbox.mu before watch.mu; conn.mu last, after any of them and after listener.mu. None is held
// while waiting, and none while the monitor or an Owner's Release is called.
type socket struct {
	// Immutable.
	kind    zmtp.SocketType
	opts    Options
	pattern pattern
	// security and proxyPassword are taken out of opts: they have secrets, which
	// do not belong into what package fmt makes of a socket. It does not look
	// into functions.
	security      func() *Security
	proxyPassword func() string
	ctx           context.Context // ends when the socket is closed for good
	cancel        context.CancelFunc
	closing       chan struct{} // closed at the beginning of Close
	shut          atomic.Bool   // the same, for those who need not wait for it

	lingering context.Context    // ends when Close is to wait for queued messages no longer
	hurry     context.CancelFunc // ends it
	hurried   atomic.Bool        // messages were left then

	withdraws      bool          // over inproc, the end of a connection drops what its peer has not received
	cookieLifetime time.Duration // of CURVE servers; 0 for the default, except in tests

	retiring atomic.Bool // the timer runs
	retirer  *time.Timer // ends writers that sleep for long; guarded by mu

	admission  admission
	incomplete incomplete

	places atomic.Uint64 // the last pipe.place that was given

	in inbox
	wg sync.WaitGroup // listeners, dialers and connections

	mu        sync.Mutex
	closed    bool
	ended     chan struct{} // closed at the end of Close
	last      string
	listeners map[string]*listener
	dialers   map[string][]*dialer // usually one an endpoint; see connectsOnce
	pipes     map[*pipe]struct{}
}

func (s *socket) init(kind zmtp.SocketType, opts Options, p pattern) error {
	if opts.Linger == 0 && (kind == zmtp.SUB || kind == zmtp.XSUB) {
		opts.Linger = -1
	}
	o, err := opts.withDefaults()
	if err != nil {
		return err
	}
	s.kind, s.opts, s.pattern = kind, o, p
	security, password := o.Security, o.SOCKSPassword
	s.security, s.opts.Security = func() *Security { return &security }, Security{}
	s.proxyPassword, s.opts.SOCKSPassword = func() string { return password }, ""
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.closing, s.ended = make(chan struct{}), make(chan struct{})
	s.lingering, s.hurry = context.WithCancel(context.Background())
	s.admission.init(&s.opts)
	s.incomplete.init(&s.opts)
	s.in.init(hwm{o.RecvHWM, o.RecvHWMBytes})
	s.in.conflate = s.conflates()
	s.in.patience = o.RecvTimeout
	s.listeners = map[string]*listener{}
	s.dialers = map[string][]*dialer{}
	s.pipes = map[*pipe]struct{}{}
	return nil
}

// LastEndpoint returns the endpoint last bound, with the address and port that
// the system chose, or the endpoint last connected, as it was given.
func (s *socket) LastEndpoint() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// report tells the monitor.
func (s *socket) report(e Event) {
	if s.opts.Monitor != nil {
		s.opts.Monitor(e)
	}
}

// enter lists an established pipe; it fails once the socket is closed.
func (s *socket) enter(p *pipe) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		select {
		case <-s.ctx.Done():
			return false
		default:
			// Lingering: a connection may still come up to be written to.
			if !p.lasting {
				return false
			}
		}
	}
	s.pipes[p] = struct{}{}
	return true
}

// leave forgets a pipe that will not come back. What it has received stays for
// the application.
func (s *socket) leave(p *pipe) {
	s.mu.Lock()
	delete(s.pipes, p)
	s.mu.Unlock()
	p.out.end()
	s.pattern.removed(p)
}

// CloseContext is Close, but when the context ends, queued messages that are
// not written by then are dropped, and the context's error is returned. It does
// the same to a Close that is under way. With [LingerForever] the context alone
// limits the wait; otherwise Options.Linger may end the wait earlier,
// without an error.
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

// Close closes the socket: it stops listening, waits until queued messages are
// written, ends all connections, and returns when every goroutine of the socket
// has ended. Options.Linger says how long it waits for queued messages. By
// default that is until each peer has taken its messages or has taken nothing for
// a second, and 30 seconds at most. CloseContext bounds the wait by a context.
// Calls that wait return ErrClosed. Closing a closed socket waits for the first
// Close and returns nil.
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

	s.in.close()
	for _, l := range listeners {
		l.close()
	}
	if s.opts.Linger >= 0 {
		s.linger()
	}
	// Dialled connections end with the context, accepted ones by their
	// listener: both know them from their first moment on, unlike pipes.
	s.cancel()
	for _, l := range listeners {
		l.disconnect()
	}
	s.wg.Wait()
	s.hurry()
	s.in.discard()
	s.report(Event{Kind: MonitorStopped})
	return nil
}

// list returns the pipes there are at the moment.
func (s *socket) list() []*pipe {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.pipes))
}

// open returns ErrClosed once the socket is closed.
func (s *socket) open() error {
	if s.shut.Load() {
		return ErrClosed
	}
	return nil
}

// maxMessage is the largest message that a peer may send, in wire bytes.
func (s *socket) maxMessage() int64 {
	return min(s.opts.MaxMessageSize, s.pattern.traits().maxMessage)
}

// check refuses what cannot be sent as a message.
func (s *socket) check(frames [][]byte) error {
	if len(frames) == 0 {
		return ErrNoFrames
	}
	var size int64
	for _, f := range frames {
		size += int64(zmtp.FrameSize(len(f)))
	}
	if size > s.opts.MaxMessageSize {
		return ErrTooLarge
	}
	return s.open()
}
