package freelance

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"clustermap/internal/fifo"
	"clustermap/internal/hooks"
	"clustermap/internal/wake"
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
	running  sync.WaitGroup // receive

	mu       sync.Mutex
	closed   bool
	draining bool          // Shutdown was called: new requests are refused
	idle     chan struct{} // closed when no request is left; nil unless Close waits for that
	work     sync.Cond     // workers wait here for requests
	workers  int           // workers that were started
	free     int           // workers that wait and were not woken
	active   int           // handlers that run
	waiting  fifo.Queue[request]
	bytes    int           // of the requests in waiting
	shares   map[any]share // of the clients that have requests in waiting
	stats    ServerStats
}

// Format implements [fmt.Formatter]. It writes the name of the type for every verb: its
// options may have a secret key, and other fields change while it is in use.
func (s *Server) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "freelance.Server") }

// request is a request that waits for a handler or is executed by one.
type request struct {
	peer    *sockets.Peer
	client  any // see hooks.Client
	control []byte
	body    [][]byte
	arrived time.Time
	bytes   int // as they count for MaxWaitingBytes
}

// share is what one client has in Server.waiting over all its connections: who has the same
// key, user or address.
type share struct{ requests, bytes int }

// NewServer binds and starts a server, which runs until Close. The context applies to
// the bind. Errors for invalid options are *OptionError; others come from
// sockets.Router.Bind.
func NewServer(ctx context.Context, o ServerOptions) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, shares: map[any]share{}}
	s.work.L = &s.mu
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.bind(ctx); err != nil {
		s.cancel()
		return nil, err
	}
	s.running.Go(func() { receive(s.router) })
	return s, nil
}

// bind makes the socket and binds it.
func (s *Server) bind(ctx context.Context) error {
	bind := s.opts.Bind
	s.endpoint = cmp.Or(s.opts.Advertise, bind)
	router, err := sockets.NewRouter(sockets.Options{
		Identity:       []byte(s.endpoint),
		Security:       s.opts.Security,
		MaxMessageSize: s.opts.MaxMessageSize,
		MaxConnections: s.opts.MaxClients,
		SendHWM:        sockets.Unlimited, // SendHWMBytes bounds the replies
		SendHWMBytes:   s.opts.MaxQueuedBytes,
		SendTotalBytes: s.opts.MaxTotalBytes,
		Metadata:       map[string]string{property: propertyVersion},
		Linger:         replyLinger,
		Monitor:        s.opts.Monitor,
	})
	if err != nil {
		return err
	}
	s.router = router
	hooks.Prepare(router, s.prepare)
	err = router.Bind(ctx, bind)
	if err == nil && wildcardPort(s.endpoint) {
		// The system has chosen the port just now, so that nobody has connected yet.
		bound := router.LastEndpoint()
		s.endpoint = bind[:strings.LastIndexByte(bind, ':')+1] + bound[strings.LastIndexByte(bound, ':')+1:]
		err = router.SetOptions(func(o *sockets.Options) { o.Identity = []byte(s.endpoint) })
	}
	if err != nil {
		return errors.Join(err, router.Close())
	}
	return nil
}

// Endpoint returns the server's identity, which is the endpoint to which clients
// connect.
func (s *Server) Endpoint() string { return s.endpoint }

// Bound returns the endpoint on which the server listens, with the port that the system
// chose.
func (s *Server) Bound() string { return s.router.LastEndpoint() }

// prepare handles the messages of a client. It runs in the goroutine that reads the
// connection, so PINGs are answered while all handlers are busy.
func (s *Server) prepare(b *hooks.Batch) {
	peer, now := (*sockets.Peer)(b.Peer()), time.Now()
	client := hooks.Client(peer)
	in := intakes.Get().(*intake)
	pings, malformed := 0, 0
	for i := range b.Len() {
		m := b.Message(i)
		switch first, rest := m.Next(); {
		case len(rest) > 0:
			in.requests = append(in.requests, s.request(peer, client, m, now))
		case bytes.Equal(first, ping):
			pings++
		default:
			malformed++
		}
	}
	b.SetSpans(b.Spans()[:0])
	in.refused = s.admit(in.requests, in.refused, pings, malformed)
	for range pings {
		_ = s.router.SendTo(wake.Ended, peer, pong) // a client that does not read needs no answer
	}
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

// request makes a request of a message, which it copies.
func (s *Server) request(peer *sockets.Peer, client any, m zmtp.WireMessage, now time.Time) request {
	all := hooks.Frames(m)
	r := request{peer: peer, client: client, control: all[0], body: all[1:], arrived: now, bytes: len(m) + frameCost*len(all)}
	if s.opts.SkipDelimiter && len(r.body) > 1 && len(r.body[0]) == 0 {
		r.body = r.body[1:]
	}
	return r
}

// admit queues requests. It appends those for which there is no room to refused.
func (s *Server) admit(requests, refused []request, pings, malformed int) []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Pings += uint64(pings)
	s.stats.Malformed += uint64(malformed)
	s.stats.Requests += uint64(len(requests))
	for _, r := range requests {
		if s.full(r.client) {
			refused = s.expire(refused, r.arrived)
		}
		if s.closed || s.draining || s.full(r.client) {
			s.stats.Busy++
			refused = append(refused, r)
			continue
		}
		s.push(r)
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

// full reports whether there is no room for another request of a client: for all, or because
// it has its part. Requests for which a handler is free do not count. mu must be held.
func (s *Server) full(client any) bool {
	wait, most, bytes := s.waiting.Len()-(s.opts.Concurrency-s.active), s.opts.MaxWaiting, s.opts.MaxWaitingBytes
	if wait < 0 || wait < most-most/clientPart && s.bytes < bytes-bytes/clientPart {
		return false // nor has any client its part
	}
	if wait >= most || s.bytes >= bytes {
		return true
	}
	own := s.shares[client]
	own.requests -= s.opts.Concurrency - s.active
	return own.requests >= most-most/clientPart || own.requests >= 0 && own.bytes >= bytes-bytes/clientPart
}

// push queues a request. mu must be held.
func (s *Server) push(r request) {
	s.waiting.Push(r)
	s.bytes += r.bytes
	own := s.shares[r.client]
	s.shares[r.client] = share{own.requests + 1, own.bytes + r.bytes}
}

// expire removes the requests that have waited too long, and appends them to refused.
// mu must be held.
func (s *Server) expire(refused []request, now time.Time) []request {
	for s.waiting.Len() > 0 && now.Sub(s.waiting.At(0).arrived) >= s.opts.MaxWait {
		s.stats.Expired++
		refused = append(refused, s.pop())
	}
	return refused
}

// pop removes the request that has waited longest. mu must be held.
func (s *Server) pop() request {
	r := s.waiting.Pop()
	s.bytes -= r.bytes
	if own := s.shares[r.client]; own.requests > 1 {
		s.shares[r.client] = share{own.requests - 1, own.bytes - r.bytes}
	} else {
		delete(s.shares, r.client)
	}
	return r
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

// next waits for a request. It also returns expired requests that were queued before
// it; if only those, r is zero. more is false after Close.
func (s *Server) next(refused []request) (r request, expired []request, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.waiting.Len() == 0 {
		if s.closed {
			return r, nil, false
		}
		s.free++
		s.work.Wait() // admit has decremented s.free
	}
	if refused = s.expire(refused, time.Now()); s.waiting.Len() > 0 {
		r = s.pop()
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

// settled wakes Shutdown when no request is left. mu must be held.
func (s *Server) settled() {
	if s.idle != nil && s.active == 0 && s.waiting.Len() == 0 {
		close(s.idle)
		s.idle = nil
	}
}

// errFailed is the result of execute when the handler returned an error.
var errFailed = errors.New("freelance: handler failed")

// execute calls the handler and sends its reply. message is scratch memory.
func (s *Server) execute(r *request, message *[][]byte) error {
	reply, err := s.opts.Handler(s.ctx, r.body)
	if err != nil {
		// Close has interrupted the handler. The connection ends, and the client
		// tries the next server.
		if s.ctx.Err() == nil || !errors.Is(err, context.Canceled) {
			s.refuse(r, reasonError, err.Error())
		}
		return errFailed
	}
	all := append(append((*message)[:0], r.control), reply...)
	if len(reply) == 0 {
		all = append(all, nil)
	}
	err = s.router.SendTo(wake.Ended, r.peer, all...)
	clear(all)
	*message = all
	if errors.Is(err, sockets.ErrTooLarge) {
		s.refuse(r, reasonError, "the reply is too large")
		return errFailed
	}
	return err
}

// refuse tells a client of this package that there will be no reply. RFC 10 has no
// message for that, so other clients get none.
func (s *Server) refuse(r *request, reason []byte, text string) {
	if _, ours := r.peer.Property(property); !ours {
		return
	}
	_ = s.router.SendTo(wake.Ended, r.peer, refused, r.control, reason, []byte(text[:min(len(text), maxErrorText)]))
}

// Stats returns the current counters.
func (s *Server) Stats() ServerStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Waiting, stats.Active = s.waiting.Len(), s.active
	return stats
}

// Shutdown executes the requests that the server has, and then closes it. Meanwhile it
// refuses new requests, so that clients of this package try another server, and answers
// pings. If the context ends first, Shutdown closes the server and returns the context's
// error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	var idle chan struct{}
	if s.active > 0 || s.waiting.Len() > 0 {
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

// Close ends the server. It cancels the handlers' context, drops waiting requests, and
// waits for the handlers to return, and then up to one second for their replies to be
// written. Closing a closed server does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.waiting, s.bytes = fifo.Queue[request]{}, 0
	clear(s.shares)
	s.settled()
	s.work.Broadcast()
	s.mu.Unlock()
	s.cancel()
	s.serving.Wait()
	err := s.router.Close()
	s.running.Wait()
	return err
}
