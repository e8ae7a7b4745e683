package majordomo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"clustermap/internal/hooks"
	"clustermap/internal/list"
	"clustermap/internal/peerlog"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Broker passes the requests of clients to the workers of services (RFC 7, RFC 18), and
// answers management requests (RFC 8). Clients and workers of both versions use the same
// endpoints. All methods are safe for concurrent use.
type Broker struct {
	opts    BrokerOptions
	router  *sockets.Router
	began   time.Time
	ctx     context.Context // ends with the broker
	cancel  context.CancelFunc
	running sync.WaitGroup
	binding sync.Mutex

	mu       sync.Mutex
	closed   bool
	now      int64  // the time of this drain, in nanoseconds since began
	drain    uint64 // counts drains
	conns    map[*sockets.Peer]*conn
	services directory
	workers  list.List[worker] // registered, in the order in which they did
	backlog  backlog
	out      outgoing
	stats    BrokerStats
	peerLog  *peerlog.Log
	scratch  []byte
}

// Format implements [fmt.Formatter]. It writes the name of the type for every verb: its
// options may have a secret key, and other fields change while it is in use.
func (b *Broker) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "majordomo.Broker") }

// BrokerStats has the counters of a broker. The last three fields are current values.
type BrokerStats struct {
	Requests  uint64 // received from clients, including management requests
	Replies   uint64 // last or only replies passed on to clients
	Partials  uint64 // partial replies passed on or kept
	Malformed uint64 // invalid messages; each ended its peer's connection
	Refused   uint64 // requests and workers for which there was no room, and workers that were not allowed
	Expired   uint64 // requests dropped after Expiry
	Repeated  uint64 // requests queued again because a worker was lost or gave them back
	// Undelivered is the number of requests dropped because MaxDeliveries workers
	// were lost while they executed them, or one that had sent a part of the reply.
	Undelivered uint64
	Abandoned   uint64 // requests and replies dropped because the client was gone
	Dismissed   uint64 // times a worker was sent DISCONNECT for a command out of turn
	Lost        uint64 // workers that were silent or disconnected

	Services, Workers int
	Bytes             int // of all requests, as they count for MaxBytes
}

// conn is a connection of a client or worker.
type conn struct {
	peer      *sockets.Peer
	ours      bool // it announced propertyMDP
	gone      bool // the connection has ended
	dismissed bool // nothing more is accepted from it or sent to it

	account *account
	bytes   int // of its requests

	worker *worker         // the worker that it is registered as, or nil
	lanes  list.List[lane] // its waiting requests
	last   *lane           // the lane of its last waiting request, if that still exists

	stage    *hooks.Stage // messages to be sent in this drain, in wire form; nil without any
	messages int

	service *service // of its last request; may be retired
}

// NewBroker starts a broker, which runs until Close. The error is for invalid options.
func NewBroker(o BrokerOptions) (*Broker, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	router, err := sockets.NewRouter(o.Socket)
	if err != nil {
		return nil, err
	}
	b := &Broker{
		opts:     o,
		router:   router,
		began:    time.Now(),
		conns:    map[*sockets.Peer]*conn{},
		services: directory{max: o.MaxServices, named: map[string]*service{}},
		out:      outgoing{router: router},
		peerLog:  peerlog.New(o.Logger),
	}
	b.backlog = backlog{opts: &b.opts, lanes: map[laneKey]*lane{}, accounts: map[any]*account{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.running.Go(b.run)
	b.running.Go(b.tick)
	return b, nil
}

// Bind listens on an endpoint: see sockets.Router.Bind. It returns the endpoint with the
// port that the system chose, if any. A broker may have several endpoints.
func (b *Broker) Bind(ctx context.Context, endpoint string) (string, error) {
	b.binding.Lock() // until LastEndpoint has returned
	defer b.binding.Unlock()
	if err := b.router.Bind(ctx, endpoint); err != nil {
		if errors.Is(err, sockets.ErrClosed) {
			err = ErrClosed
		}
		return "", err
	}
	return b.router.LastEndpoint(), nil
}

// Services returns the status of all services, sorted by name.
func (b *Broker) Services() []ServiceStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.services.status()
}

// Stats returns the current counters.
func (b *Broker) Stats() BrokerStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.Services, s.Workers, s.Bytes = len(b.services.named), b.workers.Len(), b.backlog.bytes
	return s
}

// Close sends DISCONNECT to the workers, closes the socket and waits for the broker's
// goroutines. Its requests are lost; clients of this package send theirs again to the
// next broker. Closing a closed broker does nothing.
func (b *Broker) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		b.running.Wait()
		return nil
	}
	b.closed = true
	for w := b.workers.Front(); w != nil; w = b.workers.Front() {
		w.inBroker.Remove()
		b.dismiss(w.conn, w.version)
	}
	b.out.flush(b.now)
	b.cancel()
	b.mu.Unlock()
	b.running.Wait()
	return b.router.Close()
}

// run handles messages of peers. It sends the results of all messages that were
// available to each peer at once.
func (b *Broker) run() {
	var batch sockets.Batch
	defer batch.Release()
	// RecvBatch looks at the context only when it has to wait: without this check
	// clients that never pause would keep Close waiting.
	for b.ctx.Err() == nil && b.router.RecvBatch(b.ctx, &batch) == nil {
		b.mu.Lock()
		b.now = int64(time.Since(b.began))
		b.drain++
		for n, bytes := 1, 0; ; n++ {
			bytes += len((*hooks.Batch)(&batch).Wire())
			b.handle(&batch)
			if n == maxDrain || bytes > maxDrainBytes || b.router.TryRecvBatch(&batch) != nil {
				break
			}
		}
		b.out.flush(b.now)
		b.mu.Unlock()
	}
}

// tick is the broker's clock: heartbeats, silent workers and expired requests.
func (b *Broker) tick() {
	period := max(b.opts.Heartbeat/4, time.Millisecond)
	if b.opts.Expiry > 0 {
		period = min(period, max(b.opts.Expiry/4, 10*time.Millisecond))
	}
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	last := time.Since(b.began)
	for {
		select {
		case <-ticker.C:
		case <-b.ctx.Done():
			return
		}
		now := time.Since(b.began)
		b.mu.Lock()
		b.now = int64(now)
		if late := now - last - period; late > period {
			// This process did not run, which is not the workers' fault.
			for w := range b.workers.All() {
				w.heard += int64(late)
			}
		}
		last = now
		b.purge()
		b.expire()
		b.out.flush(b.now)
		b.mu.Unlock()
		b.peerLog.Flush(time.Now())
	}
}

// purge removes silent workers and sends heartbeats to the others.
func (b *Broker) purge() {
	silent := b.now - int64(b.opts.Heartbeat)*int64(b.opts.Liveness)
	idle := b.now - int64(b.opts.Heartbeat)*7/8
	for w := range b.workers.All() {
		if w.heard <= silent {
			b.stats.Lost++
			// It may come back.
			b.dismiss(w.conn, w.version)
			b.remove(w)
			continue
		}
		if w.lastSent <= idle {
			w.conn.stage.Bytes = appendWorkerHeader(b.out.open(w.conn), w.version, heartbeat, false)
		}
	}
}

// expire drops requests that have waited too long.
func (b *Broker) expire() {
	for j := b.backlog.deadlines.Front(); j != nil && j.expiry <= b.now; j = b.backlog.deadlines.Front() {
		j.inTime.Remove()
		if j.lane == nil {
			continue // a worker has it
		}
		s := j.service
		b.backlog.unwait(j)
		b.stats.Expired++
		b.refuse(j, ErrExpired)
		b.services.retire(s)
	}
}

// handle handles a batch of one peer.
func (b *Broker) handle(batch *sockets.Batch) {
	c := b.conns[batch.Peer()]
	if c == nil {
		c = &conn{peer: batch.Peer()}
		c.ours = isOurs(c.peer)
		b.backlog.join(c, hooks.Client(c.peer))
		b.conns[c.peer] = c
	}
	if c.worker != nil {
		c.worker.heard = b.now
	}
	var p packet
	for i := range batch.Len() {
		switch {
		case !p.parse(batch.Message(i), true):
			b.invalid(c)
		case p.command == notice:
			b.end(c)
			return
		case c.dismissed:
		case p.worker:
			b.handleCommand(c, &p)
		default:
			b.handleRequest(c, &p)
		}
	}
}

// end removes a connection that has ended.
func (b *Broker) end(c *conn) {
	delete(b.conns, c.peer)
	b.backlog.leave(c)
	c.gone = true
	if w := c.worker; w != nil {
		b.stats.Lost++
		b.remove(w)
	}
	for l := c.lanes.Front(); l != nil; l = c.lanes.Front() {
		j := l.jobs.Front()
		s := j.service
		b.backlog.unwait(j) // the lane ends with its last job
		b.stats.Abandoned++
		b.backlog.drop(j)
		b.services.retire(s)
	}
}

// invalid disconnects a peer that sent an invalid message (RFC 7: the broker treats the
// peer as invalid). If it reconnects, it is a new peer.
func (b *Broker) invalid(c *conn) {
	if c.dismissed {
		return
	}
	b.stats.Malformed++
	c.dismissed = true
	c.peer.Disconnect(ErrMalformed)
	if w := c.worker; w != nil {
		b.stats.Lost++
		b.remove(w)
	}
}

// dismiss sends DISCONNECT to a worker, and nothing more after that.
func (b *Broker) dismiss(c *conn, v Version) {
	c.stage.Bytes = appendWorkerHeader(b.out.open(c), v, disconnect, false)
	c.dismissed = true
}

func (b *Broker) handleCommand(c *conn, p *packet) {
	w := c.worker
	if w != nil && w.version != p.version {
		b.invalid(c)
		return
	}
	switch p.command {
	case ready:
		if isReserved(p.service) {
			b.logRefusal(c, p.service, "the service is the broker's own")
		}
		if w != nil || isReserved(p.service) {
			b.outOfTurn(c, p.version)
			return
		}
		why := b.refusal(c, p.service)
		if why == "" {
			if w = b.register(c, p); w != nil {
				if c.ours {
					c.stage.Bytes = appendWorkerHeader(b.out.open(c), w.version, heartbeat, false)
				}
				b.dispatch(w.service)
				return
			}
			why = "no room for more workers or services"
		}
		b.stats.Refused++
		b.logRefusal(c, p.service, why)
		b.dismiss(c, p.version)
	case disconnect:
		c.dismissed = true
		if w != nil {
			b.remove(w)
		}
	case heartbeat:
		if w == nil {
			b.outOfTurn(c, p.version)
		}
	case reply, partial:
		if w == nil || w.jobs.Len() == 0 {
			b.outOfTurn(c, p.version)
			return
		}
		j := w.jobs.Front()
		if string(p.address) != string(j.client.peer.Identity()) {
			b.invalid(c)
			return
		}
		b.handleReply(w, j, p)
	case giveBack:
		if w == nil || !b.handleGiveBack(w, p.count) {
			b.invalid(c)
		}
	default: // a REQUEST
		b.invalid(c)
	}
}

// outOfTurn answers a command that is valid but not expected (RFC 7: the broker
// responds with DISCONNECT and nothing else).
func (b *Broker) outOfTurn(c *conn, v Version) {
	b.stats.Dismissed++
	b.dismiss(c, v)
	if w := c.worker; w != nil {
		b.remove(w)
	}
}

// handleRequest handles a request of a client.
func (b *Broker) handleRequest(c *conn, p *packet) {
	b.stats.Requests++
	if isReserved(p.service) {
		b.answer(c, p)
		return
	}
	size := len(p.envelope) + len(p.body) + jobCost
	s := c.service
	if s == nil || s.retired || s.name != string(p.service) {
		s = b.services.lookup(c, p.service)
		c.service = s
	}
	switch {
	case s == nil:
		b.decline(c, p, ErrNoService)
		return
	case !b.backlog.hasRoom(c, s, size):
		b.decline(c, p, ErrQueueFull)
		b.services.retire(s)
		return
	}
	b.admit(b.backlog.newJob(c, s, p, b.now))
}

// handleReply passes on a reply or a part of one.
func (b *Broker) handleReply(w *worker, j *job, p *packet) {
	c := j.client
	switch {
	case p.command == partial && c.gone:
		b.stats.Abandoned++
		return
	case p.command == partial && j.version == Version02:
		b.stats.Partials++
		j.begun = true
		b.out.stageReply(j, partial, p.body)
		return
	case p.command == partial:
		// A client of 0.1 gets one reply with all parts.
		if b.backlog.bytes+len(p.body) > b.opts.MaxBytes {
			b.invalid(w.conn)
			return
		}
		b.stats.Partials++
		b.backlog.bytes += len(p.body)
		j.kept = appendContinued(j.kept, p.body)
		return
	}
	j.take()
	w.adapt(b.now, j.sent)
	w.place()
	if c.gone {
		b.stats.Abandoned++
	} else {
		b.stats.Replies++
		b.out.stageReply(j, reply, p.body)
	}
	s := j.service
	b.backlog.drop(j)
	if s.waiting > 0 {
		b.dispatch(s)
	}
}

// appendContinued appends a message so that more frames can follow its last one.
func appendContinued(dst []byte, m zmtp.WireMessage) []byte {
	for len(m) > 0 {
		at := len(dst)
		_, rest := m.Next()
		dst = append(dst, m[:len(m)-len(rest)]...)
		dst[at] |= zmtp.FlagMore
		m = rest
	}
	return dst
}

// refuse ends a job that was not executed, and reports that to a client of this
// package.
func (b *Broker) refuse(j *job, why *Error) {
	if j.client.ours && !j.client.gone {
		b.backlog.forgetReply(j)
		b.out.stageReply(j, reply, why.wire())
	}
	b.backlog.drop(j)
}

// decline is refuse for a request that was not accepted.
func (b *Broker) decline(c *conn, p *packet, why *Error) {
	b.stats.Refused++
	if c.ours {
		b.out.respond(c, p, why.wire())
	}
}
