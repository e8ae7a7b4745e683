package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/bounds"
	"clustermap/internal/queue"
	"clustermap/internal/wake"
	"clustermap/zmtp"
)

// Socket is the engine that all socket types share: endpoints, pipes, and
// shutdown.
//
// Lock order: Poller.mu before Socket.mu before a pattern's own mutex before
// Outbox.mu or Inbox.mu before watch.mu; conn.mu last, after any of them and
// after listener.mu. No lock is held while waiting, or while calling the
// monitor or an Owner's Release.
type Socket struct {
	// Immutable.
	kind    zmtp.SocketType
	pattern *Pattern
	ctx     context.Context // ends when the socket is closed for good
	cancel  context.CancelFunc
	closing chan struct{} // closed at the beginning of Close
	shut    atomic.Bool   // set at the beginning of Close, for code that only polls

	settings settings
	Tuning   Tuning

	lingering context.Context    // ends when Close stops waiting for queued messages
	hurry     context.CancelFunc // ends lingering
	hurried   atomic.Bool        // messages were left when lingering ended

	idle   wake.Idle // of senders that write messages themselves; see writer.direct
	retire retirement

	admission  bounds.Admission
	incomplete bounds.Incomplete
	total      total
	totals     totals

	places    atomic.Uint64 // the last Pipe.Place assigned
	serverKey atomic.Int32  // that a server had last; see Security.ServerKeys

	In    queue.Inbox // what was received
	gives atomic.Bool // the application takes large messages one by one; see reader.givesAway

	wg sync.WaitGroup // listeners, dialers and connections

	mu        sync.Mutex
	closed    bool
	ended     chan struct{} // closed at the end of Close
	endpoints endpoints
	pipes     map[*Pipe]struct{}
	peers     struct {
		count   int // connected, without those that the socket ignores
		changed queue.Gate
	}
}

// endpoints are those of a socket, by their text. Socket.mu guards them.
type endpoints struct {
	last      string
	listeners map[string]*listener
	dialers   map[string][]*dialer // usually one per endpoint; see Traits.Once
}

// Tuning has times and sizes that only tests change.
type Tuning struct {
	LoanTerm       time.Duration // loanTerm
	Behind         int           // behindBytes
	CookieLifetime time.Duration // of CURVE servers; 0 for the default
	bounds.Tuning
}

// Init initializes a socket. The pattern must not change any more.
func (s *Socket) Init(kind zmtp.SocketType, o *Config, p *Pattern) {
	p.MaxMessage = cmp.Or(p.MaxMessage, MaxMessage)
	p.complete(s)
	s.kind, s.pattern = kind, p
	s.settings.store(o)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.closing, s.ended = make(chan struct{}), make(chan struct{})
	s.lingering, s.hurry = context.WithCancel(context.Background())
	s.Tuning = Tuning{LoanTerm: loanTerm, Behind: behindBytes, Tuning: bounds.DefaultTuning()}
	s.admission.Init(o.admission(), &s.Tuning.Tuning)
	s.incomplete.Init(o.MaxIncompleteBytes, &s.Tuning.Tuning)
	s.total.set(o.SendTotalBytes)
	var lead func(*queue.Conn) []byte
	if s.Addressed() {
		lead = leadOf
	}
	s.In.Init(o.Recv, o.RecvTotalBytes, o.Conflate, lead)
	s.endpoints = endpoints{listeners: map[string]*listener{}, dialers: map[string][]*dialer{}}
	s.pipes = map[*Pipe]struct{}{}
}

// SetPrepare sets Pattern.Prepare, and SetScan Pattern.Scan, before the socket is bound or connected.
func (s *Socket) SetScan(f func(b []byte) (size int, tag uint64)) { s.pattern.scan = f }

func (s *Socket) SetPace(f func(*Batch) time.Duration) { s.pattern.pace = f }

// SetPrepare is described in package hooks.
func (s *Socket) SetPrepare(f func(*Batch)) { s.pattern.prepare = f }

// Alone says that nothing follows the next message soon: its sender writes it, in a socket whose
// senders do that when it was idle.
func (s *Socket) Alone() { s.idle.Rest() }

// Kind returns the type of the socket.
func (s *Socket) Kind() zmtp.SocketType { return s.kind }

// Closing returns a channel that is closed at the beginning of Close.
func (s *Socket) Closing() <-chan struct{} { return s.closing }

// DropFrom removes v from the values of a key, and reports whether it was among
// them.
func DropFrom[V comparable](m map[string][]V, key string, v V) bool {
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

// LastEndpoint returns the endpoint most recently bound or connected; see
// sockets.Socket.
func (s *Socket) LastEndpoint() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endpoints.last
}

// report passes an event to the monitor, if there is one.
func (s *Socket) report(e Event) {
	if monitor := s.Config().Monitor; monitor != nil {
		monitor(e)
	}
}

// enter lists an established pipe. It reports false if the socket is closed.
func (s *Socket) enter(p *Pipe) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	// While the socket lingers, a connection may still be established, to write
	// the messages queued for it.
	if s.closed && (s.ctx.Err() != nil || !p.Lasting) {
		return false
	}
	s.pipes[p] = struct{}{}
	if !p.Lasting {
		p.Out.SetLimits(s.Config().Send) // they may have changed since it was made
	}
	return true
}

// leave removes a pipe that will not be used again. The messages received on it
// stay available to the application.
func (s *Socket) leave(p *Pipe) {
	before := s.remove(p)
	p.Out.End()
	s.totals.lost(p, before)
	s.pattern.Removed(p)
}

// CloseContext is Close, but stops waiting when the context is done: it then drops the
// messages that are still queued and returns the context's error.
func (s *Socket) CloseContext(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.hurry)
	defer stop()
	s.Close()
	if s.hurried.Load() {
		return ctx.Err()
	}
	return nil
}

// Close closes the socket: it stops listening, waits until the queued messages
// are written, closes all connections, and returns when all goroutines of the
// socket have ended. Further calls wait until the first one returns.
func (s *Socket) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.ended
		return
	}
	s.closed = true
	defer close(s.ended)
	s.shut.Store(true)
	s.stopRetiring()
	close(s.closing)
	listeners := s.endpoints.listeners
	s.endpoints.listeners = map[string]*listener{}
	s.mu.Unlock()

	for _, p := range s.Pipes() {
		p.Out.Seal() // a Send that does not look whether the socket is closed is refused
	}
	s.In.Close()
	for _, l := range listeners {
		l.close()
	}
	if s.Config().Linger >= 0 {
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
	s.In.Discard()
	s.report(Event{Kind: MonitorStopped})
}

// Pipes returns the current pipes.
func (s *Socket) Pipes() []*Pipe {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.pipes))
}

// Status is a snapshot of what a socket counts.
type Status struct {
	Peers      int  // connected, without those that it ignores
	Holders    int  // connections with messages that have not arrived as a whole
	Incomplete int  // bytes of these messages
	Scarce     bool // the memory for them is nearly used up
	Writers    bool // the timer for writers that sleep runs: there may be writers
}

// Status returns a snapshot of what the socket counts.
func (s *Socket) Status() (t Status) {
	s.mu.Lock()
	t.Peers = s.peers.count
	s.mu.Unlock()
	t.Incomplete, t.Holders = s.incomplete.Status()
	t.Scarce = s.incomplete.Scarce()
	t.Writers = s.retire.runs.Load()
	return t
}

// WaitPeers waits until at least n peers are connected that the socket does not ignore.
func (s *Socket) WaitPeers(ctx context.Context, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.closed {
			return queue.ErrClosed
		}
		if s.peers.count >= n {
			return nil
		}
		if err := s.peers.changed.Wait(ctx, &s.mu, s.closing, nil); err != nil {
			return err
		}
	}
}

// countPeers counts n more peers that are connected.
func (s *Socket) countPeers(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers.count += n
	s.peers.changed.WakeAll()
}

// AnyRoom reports whether at least one peer's queue is not full. Full queues signal when
// they have room.
func (s *Socket) AnyRoom() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.pipes {
		if p.Out.Would() != queue.Full {
			return true
		}
	}
	return false
}

// Open returns queue.ErrClosed if the socket is closed, and nil otherwise.
func (s *Socket) Open() error {
	if s.shut.Load() {
		return queue.ErrClosed
	}
	return nil
}

// maxMessage returns the maximum size of a message received on a connection with
// the given options, in bytes on the wire.
func (s *Socket) maxMessage(o *Config) int64 {
	return min(o.MaxMessageSize, s.pattern.MaxMessage)
}

// Reads returns a number that changes when anything arrives on one of the present
// connections, and Ping sends a PING on each; see sockets.Socket.
func (s *Socket) Reads() (sum uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.pipes {
		if peer := p.peer.Load(); peer != nil {
			sum += 1 + peer.conn.Reads()
		}
	}
	return sum
}

func (s *Socket) Ping() {
	ping := zmtp.AppendPing(nil, 0, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.pipes {
		if peer := p.peer.Load(); peer != nil && peer.info.Major >= 3 {
			p.Out.Command(ping)
		}
	}
}
