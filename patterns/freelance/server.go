package freelance

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"time"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// Server answers requests. All methods are safe for concurrent use.
type Server struct {
	opts     ServerOptions
	endpoint string
	router   *sockets.Router
	ctx      context.Context // of the handlers
	cancel   context.CancelFunc
	serving  sync.WaitGroup // workers
	running  sync.WaitGroup // what receives

	mu       sync.Mutex
	closed   bool
	draining bool          // Shutdown was called: new requests are refused
	idle     chan struct{} // closed when nothing is left to do; nil while nobody waits for that
	work     sync.Cond     // workers wait here for requests
	workers  int           // that were started
	free     int           // of these, those that wait and were not woken
	active   int           // handlers that run
	waiting  queue
	stats    ServerStats
}

// request waits for a handler, or is executed by one.
type request struct {
	peer    *sockets.Peer
	control []byte
	body    [][]byte
	arrived time.Time
	bytes   int // on the wire
}

// NewServer makes a server, binds it and starts it. The context bounds the binding;
// the server runs until Close. Faults of the options are *OptionError; those of the
// endpoint are package sockets', or the network's.
func NewServer(ctx context.Context, o ServerOptions) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o}
	s.work.L = &s.mu
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.bind(ctx); err != nil {
		s.cancel()
		return nil, err
	}
	s.running.Go(s.receive)
	return s, nil
}

// replyLinger is how long Close waits for replies to be written.
const replyLinger = time.Second

// bindAttempts is how often another port is tried.
const bindAttempts = 20

// bind makes the socket. A ZMTP identity is fixed before a socket is bound; so if the
// identity has a port of the system's choice, that is found out with another socket,
// and tried again if somebody else gets it between.
func (s *Server) bind(ctx context.Context) error {
	bind, identity := s.opts.Bind, s.opts.Advertise
	if identity != "" || !wildcardPort(bind) {
		if identity == "" {
			identity = bind
		}
		return s.listen(ctx, bind, identity)
	}
	var err error
	for range bindAttempts {
		var port string
		if port, err = freePort(ctx, bind); err != nil {
			return err
		}
		endpoint := bind[:strings.LastIndexByte(bind, ':')+1] + port
		if err = s.listen(ctx, endpoint, endpoint); !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
	}
	return err
}

// freePort returns a port that was free on the address of an endpoint.
func freePort(ctx context.Context, endpoint string) (string, error) {
	r, err := sockets.NewRouter(sockets.Options{})
	if err != nil {
		return "", err
	}
	err = r.Bind(ctx, endpoint)
	bound := r.LastEndpoint()
	if err = errors.Join(err, r.Close()); err != nil {
		return "", err
	}
	return bound[strings.LastIndexByte(bound, ':')+1:], nil
}

func (s *Server) listen(ctx context.Context, bind, identity string) error {
	router, err := sockets.NewRouter(sockets.Options{
		Identity:       []byte(identity),
		Security:       s.opts.Security,
		MaxMessageSize: s.opts.MaxMessageSize,
		MaxConnections: s.opts.MaxClients,
		SendHWM:        -1, // a client may have many requests; the bound in bytes holds
		SendHWMBytes:   s.opts.MaxQueuedBytes,
		SendTotalBytes: s.opts.MaxTotalBytes,
		Metadata:       map[string]string{property: propertyVersion},
		Linger:         replyLinger,
		Prepare:        s.prepare,
		Monitor:        s.opts.Monitor,
	})
	if err != nil {
		return err
	}
	s.router, s.endpoint = router, identity
	if err := router.Bind(ctx, bind); err != nil {
		return errors.Join(err, router.Close())
	}
	return nil
}

// Endpoint returns the server's identity, which is the endpoint that clients
// connect to.
func (s *Server) Endpoint() string { return s.endpoint }

// Bound returns the endpoint that the server listens on, with the address and port
// that the system chose.
func (s *Server) Bound() string { return s.router.LastEndpoint() }

// receive has the socket receive: all that comes is handled by prepare, which over
// inproc runs in a receive call.
func (s *Server) receive() {
	var b sockets.Batch
	defer b.Release()
	for s.router.RecvBatch(context.Background(), &b) == nil {
	}
}

// prepare handles the messages of a client. It runs in the goroutine that reads the
// client's connection, so a PING is answered whatever the handlers do.
func (s *Server) prepare(b *sockets.Batch) {
	peer, now := b.Peer(), time.Now()
	in := intakes.Get().(*intake)
	pings, malformed := 0, 0
	for i := range b.Len() {
		m := b.Message(i)
		switch first, rest := m.Next(); {
		case len(rest) > 0:
			in.requests = append(in.requests, s.request(peer, m, now))
		case bytes.Equal(first, ping):
			pings++
			_ = s.router.SendTo(over, peer, pong) // who reads nothing needs no answer
		default:
			malformed++
		}
	}
	b.SetSpans(b.Spans()[:0])
	in.refused = s.admit(in.requests, in.refused, pings, malformed)
	for i := range in.refused {
		s.refuse(&in.refused[i], reasonBusy, "")
	}
	in.release()
}

// intake is the scratch memory of prepare for one batch.
type intake struct{ requests, refused []request }

var intakes = sync.Pool{New: func() any { return new(intake) }}

func (in *intake) release() {
	clear(in.requests)
	clear(in.refused)
	in.requests, in.refused = in.requests[:0], in.refused[:0]
	intakes.Put(in)
}

// request copies a request out of what was read.
func (s *Server) request(peer *sockets.Peer, m zmtp.Message, now time.Time) request {
	all := frames(m)
	r := request{peer: peer, control: all[0], body: all[1:], arrived: now, bytes: len(m)}
	if s.opts.SkipDelimiter && len(r.body) > 1 && len(r.body[0]) == 0 {
		r.body = r.body[1:]
	}
	return r
}

// admit queues requests, and appends those to refused for which there is no room.
func (s *Server) admit(requests, refused []request, pings, malformed int) []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Pings += uint64(pings)
	s.stats.Malformed += uint64(malformed)
	s.stats.Requests += uint64(len(requests))
	for _, r := range requests {
		if s.full() {
			refused = s.expire(refused, r.arrived)
		}
		if s.closed || s.draining || s.full() {
			s.stats.Busy++
			refused = append(refused, r)
			continue
		}
		s.waiting.push(r)
		switch {
		case s.free > 0:
			s.free--
			s.work.Signal()
		case s.workers < s.opts.Concurrency && !s.closed:
			s.workers++
			s.serving.Go(s.serve)
		}
	}
	return refused
}

// full reports whether no request may wait any more. Those that an idle handler will
// take at once do not count. mu must be held.
func (s *Server) full() bool {
	wait := s.waiting.len() - (s.opts.Concurrency - s.active)
	return wait >= s.opts.MaxWaiting || wait >= 0 && s.waiting.bytes >= s.opts.MaxWaitingBytes
}

// expire appends the requests to refused that have waited for too long. mu must be
// held.
func (s *Server) expire(refused []request, now time.Time) []request {
	for s.waiting.len() > 0 && now.Sub(s.waiting.first().arrived) >= s.opts.MaxWait {
		s.stats.Expired++
		refused = append(refused, s.waiting.pop())
	}
	return refused
}

// serve executes requests, one after the other.
func (s *Server) serve() {
	var refused []request
	var message [][]byte
	for {
		r, expired, more := s.next(refused[:0])
		for i := range expired {
			s.refuse(&expired[i], reasonBusy, "")
		}
		clear(expired)
		refused = expired
		if !more {
			return
		}
		if r.peer != nil {
			s.finished(s.execute(&r, &message))
		}
	}
}

// next waits for a request. It returns those before it that have waited for too long,
// too, or these alone; and false when there will be no more.
func (s *Server) next(refused []request) (r request, expired []request, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.waiting.len() == 0 {
		if s.closed {
			return r, nil, false
		}
		s.free++
		s.work.Wait() // who wakes a worker takes it off s.free
	}
	if refused = s.expire(refused, time.Now()); s.waiting.len() > 0 {
		r = s.waiting.pop()
		s.active++
	} else {
		s.settled()
	}
	return r, refused, true
}

// finished counts the outcome of a request.
func (s *Server) finished(outcome error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	switch outcome {
	case nil:
		s.stats.Replies++
	case errFailed:
		s.stats.Failed++
	default:
		s.stats.Dropped++
	}
	s.settled()
}

// settled tells Shutdown when nothing is left to do. mu must be held.
func (s *Server) settled() {
	if s.idle != nil && s.active == 0 && s.waiting.len() == 0 {
		close(s.idle)
		s.idle = nil
	}
}

// errFailed is what execute returns when the handler returned an error.
var errFailed = errors.New("freelance: handler failed")

// execute calls the handler and sends its reply. message is memory for its frames.
func (s *Server) execute(r *request, message *[][]byte) error {
	reply, err := s.opts.Handler(s.ctx, r.body)
	if err != nil {
		// A handler that was interrupted by Close has not failed: the connection
		// ends, and the client goes to the next server.
		if s.ctx.Err() == nil || !errors.Is(err, context.Canceled) {
			s.refuse(r, reasonError, err.Error())
		}
		return errFailed
	}
	all := append(append((*message)[:0], r.control), reply...)
	if len(reply) == 0 {
		all = append(all, nil)
	}
	err = s.router.SendTo(over, r.peer, all...)
	clear(all)
	*message = all
	if errors.Is(err, sockets.ErrTooLarge) {
		s.refuse(r, reasonError, "the reply is larger than the server may send")
		return errFailed
	}
	return err
}

// refuse tells a client of this package that there will be no reply. RFC 10 has no
// message for that, so other clients are told nothing.
func (s *Server) refuse(r *request, reason []byte, text string) {
	if r.peer.Property(property) == "" {
		return
	}
	_ = s.router.SendTo(over, r.peer, refused, r.control, reason, []byte(text[:min(len(text), maxErrorText)]))
}

// Stats returns a reading of the counters.
func (s *Server) Stats() ServerStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Waiting, stats.Active = s.waiting.len(), s.active
	return stats
}

// Shutdown ends the server when the requests that it has are executed. New ones are
// refused meanwhile, so that clients of this package go to another server; pings are
// answered. When the context ends first, the server is closed, and Shutdown returns
// the context's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	var idle chan struct{}
	if s.active > 0 || s.waiting.len() > 0 {
		if s.idle == nil {
			s.idle = make(chan struct{})
		}
		idle = s.idle
	}
	s.mu.Unlock()
	var err error
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return errors.Join(err, s.Close())
}

// Close ends the server: the handlers' context ends, requests that wait are dropped,
// and Close returns when the handlers have returned and their replies are written,
// or a second has passed for those. Closing a closed server does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.waiting.clear()
	s.settled()
	s.work.Broadcast()
	s.mu.Unlock()
	s.cancel()
	s.serving.Wait()
	err := s.router.Close()
	s.running.Wait()
	return err
}
