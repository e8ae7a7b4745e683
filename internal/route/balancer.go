package route

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"clustermap/internal/buf"
	"clustermap/internal/engine"
	"clustermap/internal/queue"
)

// Balancer sends each message to the next peer in turn that has room (RFC 28
// and 30: round robin).
//
// A pipe that Connect has made takes part from the start, so that messages are
// queued before the connection is established; with Options.Immediate it takes
// part only while it is connected. An accepted pipe lives no longer than its
// connection. Pipes take turns in the order in which connections were accepted
// or Connect was called, not in the order in which handshakes end.
type Balancer struct {
	mu    sync.Mutex
	pipes []*engine.Pipe
	next  int
	left  int        // bytes that may be queued before the total is computed again; see admits
	room  queue.Gate // senders wait here while no pipe takes a message
	core  *engine.Socket

	// only is the single pipe, or nil if there is not exactly one. A message
	// then costs one lock, that of the pipe's outbox, instead of two.
	only atomic.Pointer[onlyPipe]
}

// onlyPipe is the single pipe of a Balancer.
type onlyPipe struct {
	pipe *engine.Pipe
	to   *queue.Conn // the pipe accepts messages only for this connection; nil for any
}

func (lb *Balancer) Init(core *engine.Socket) { lb.core = core }

// added, attached and detached are called by the functions of engine.Pattern of the same
// name, and Remove by Pattern.Removed.
func (lb *Balancer) Added(p *engine.Pipe) {
	if !p.Immediate {
		lb.Add(p)
	}
}

func (lb *Balancer) Attached(p *engine.Pipe) {
	if p.Transient() {
		lb.Add(p)
	}
}

func (lb *Balancer) Detached(p *engine.Pipe) {
	if p.Transient() {
		lb.Remove(p)
	}
}

// Add inserts a pipe at its place. If its turn in the current round has passed,
// its first turn is in the next round.
func (lb *Balancer) Add(p *engine.Pipe) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	i := len(lb.pipes)
	for i > 0 && lb.pipes[i-1].Place > p.Place { // usually its place is the last
		i--
	}
	lb.pipes = slices.Insert(lb.pipes, i, p)
	if i < lb.next {
		lb.next++
	}
	lb.changed()
	lb.room.Wake()
}

func (lb *Balancer) Remove(p *engine.Pipe) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	i := slices.Index(lb.pipes, p)
	if i < 0 {
		return
	}
	lb.pipes = slices.Delete(lb.pipes, i, i+1)
	if i < lb.next {
		lb.next--
	}
	lb.changed()
	lb.room.Wake() // the queues of the others may have more room
}

// Adjust makes a change of Options.SendTotalBytes take effect.
func (lb *Balancer) Adjust() {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	lb.changed()
	lb.room.WakeAll()
}

// changed updates only, and has the total computed again. A sender may have loaded only just before. Its message
// may then go to a pipe that is no longer the only one, which is the same as if
// it had come first. Or it may go to a pipe that was removed, which refuses it:
// the outbox has ended or, if it outlives its connection, no longer has that
// peer. mu must be held.
func (lb *Balancer) changed() {
	lb.left = 0
	if len(lb.pipes) != 1 {
		lb.only.Store(nil)
		return
	}
	one := &onlyPipe{pipe: lb.pipes[0]}
	if !one.pipe.Lasting || one.pipe.Immediate {
		one.to = one.pipe.Out.Connected()
	}
	lb.only.Store(one)
}

func (lb *Balancer) Roomy() {
	lb.mu.Lock()
	lb.room.Wake()
	lb.mu.Unlock()
}

// turn returns the pipe whose turn it is. There must be one. mu must be held.
func (lb *Balancer) turn() *engine.Pipe {
	if lb.next >= len(lb.pipes) {
		lb.next = 0
	}
	p := lb.pipes[lb.next]
	lb.next++
	return p
}

// wait waits until a pipe may have room. mu must be held.
func (lb *Balancer) wait(ctx context.Context, l *queue.Limit) error {
	return lb.room.Wait(ctx, &lb.mu, lb.core.Closing(), l)
}

// admits reports whether Options.SendTotalBytes lets a message of the given size be
// queued. If not, the sender has to wait: there is no peer for which a message is certain
// to be, so none is disconnected and no message is lost.
//
// From half of the limit on, a peer that holds more than an equal share of the other half
// gets no more messages, so that peers that do not read leave room for those that do.
// Messages may be so large that the shares together exceed the limit; then nobody gets
// any. A single queue is limited by Options.SendHWMBytes alone. As with engine.Socket.Queued,
// the sum is computed only when enough bytes were queued since the last time. mu must be held.
func (lb *Balancer) admits(bytes int) bool {
	lb.left -= bytes
	if lb.left > 0 || len(lb.pipes) < 2 {
		return true
	}
	limit, sum := lb.core.Config().SendTotalBytes, 0
	for _, p := range lb.pipes {
		sum += p.Out.Status().Held()
	}
	lb.left = max(limit/2-sum, limit/engine.TotalStep, 1)
	if sum < limit/2 {
		return true
	}
	share := limit / 2 / len(lb.pipes)
	if sum >= limit {
		share = 0
	}
	marked := false
	for _, p := range lb.pipes {
		marked = p.Out.MarkFull(max(share, 1)) || marked
	}
	if sum >= limit && marked { // the first of them that is written lets senders try again
		lb.left = 0
		return false
	}
	return true
}

// SendOnly sends a message of one frame to the single pipe. It reports false if that
// is not possible now. The pipes of a socket that is being closed take no messages.
func (lb *Balancer) SendOnly(frames [][]byte) bool {
	const header = 9 // of a large frame
	if len(frames) != 1 || int64(len(frames[0])) > lb.core.MaxMessage()-header {
		return false
	}
	one := lb.only.Load()
	return one != nil && one.pipe.Out.OfferOne(one.to, frames[0]) == queue.Accepted
}

// Send sends one message to the next pipe that has room, and waits for one if
// necessary.
func (lb *Balancer) Send(ctx context.Context, frames [][]byte) error {
	if one := lb.only.Load(); one != nil && len(frames) > 1 && one.pipe.Out.Offer(one.to, nil, frames) == queue.Accepted {
		return nil
	}
	return lb.send(ctx, engine.BodiesSize(frames), func(o *queue.Outbox) queue.Verdict { return o.Offer(nil, nil, frames) })
}

// send offers a number of bytes to the pipes in turn until one takes them.
func (lb *Balancer) send(ctx context.Context, size int, offer func(*queue.Outbox) queue.Verdict) error {
	l := lb.core.SendLimit()
	lb.mu.Lock()
	defer lb.mu.Unlock()
	for {
		if err := lb.core.Open(); err != nil {
			return err
		}
		if lb.admits(size) && lb.offer(offer) != nil {
			return nil
		}
		if err := lb.wait(ctx, &l); err != nil {
			return err
		}
	}
}

// offer returns the first pipe in turn that accepts an offer, or nil. mu must be held.
func (lb *Balancer) offer(offer func(*queue.Outbox) queue.Verdict) *engine.Pipe {
	for range lb.pipes {
		if p := lb.turn(); offer(&p.Out) == queue.Accepted {
			lb.room.Wake() // there may be room for others
			return p
		}
	}
	return nil
}

// Try sends one message, which begins with the encoded frames in head, and
// returns the pipe. It returns nil if it would have to wait.
func (lb *Balancer) Try(head []byte, frames [][]byte) *engine.Pipe {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	return lb.offer(func(o *queue.Outbox) queue.Verdict { return o.Offer(nil, head, frames) })
}

// Await waits until Try may succeed.
func (lb *Balancer) Await(ctx context.Context, l *queue.Limit) error {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	for {
		if err := lb.core.Open(); err != nil {
			return err
		}
		if slices.ContainsFunc(lb.pipes, (*engine.Pipe).HasRoom) {
			lb.room.Wake()
			return nil
		}
		if err := lb.wait(ctx, l); err != nil {
			return err
		}
	}
}

// SendWire sends encoded messages, all to the same peer, which counts as one
// turn.
func (lb *Balancer) SendWire(ctx context.Context, wire []byte, messages int, owner queue.Owner) error {
	if len(wire) == 0 {
		return lb.core.Open()
	}
	return lb.send(ctx, len(wire), func(o *queue.Outbox) queue.Verdict { return o.OfferWire(nil, wire, messages, owner) })
}

// SendBatch sends messages of one frame and returns how many it has sent. Each
// peer gets a run of about the same size, so that the locks are taken once per
// run.
func (lb *Balancer) SendBatch(ctx context.Context, bodies [][]byte) (sent int, err error) {
	l := lb.core.SendLimit()
	lb.mu.Lock()
	defer lb.mu.Unlock()
	for {
		if err := lb.core.Open(); err != nil || sent == len(bodies) {
			return sent, err
		}
		run := (len(bodies) - sent + len(lb.pipes) - 1) / max(len(lb.pipes), 1)
		for refusals := 0; refusals < len(lb.pipes) && lb.admits(engine.BodiesSize(bodies[sent:min(sent+run, len(bodies))])); {
			n := lb.turn().Out.OfferEach(nil, bodies[sent:min(sent+run, len(bodies))])
			if sent += n; sent == len(bodies) {
				lb.room.Wake()
				return sent, nil
			}
			if refusals++; n > 0 {
				refusals = 0
			}
		}
		if err := lb.wait(ctx, &l); err != nil {
			return sent, err
		}
	}
}

// HasRoom reports whether at least one pipe would accept a message. If not, the
// full pipes will signal when they accept messages again.
func (lb *Balancer) HasRoom() bool {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	return lb.admits(0) && slices.ContainsFunc(lb.pipes, (*engine.Pipe).HasRoom)
}

// SendSpans sends the messages of wire at spans, each preceded by lead, to the next peers in
// turn: each to another one, or all together to the only one. It returns how many it has
// sent, which is at least one unless there is an error.
func (lb *Balancer) SendSpans(ctx context.Context, lead, wire []byte, spans []buf.Span, owner queue.Owner) (int, error) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	for {
		if err := lb.core.Open(); err != nil {
			return 0, err
		}
		sent := 0
		for refused := 0; refused < len(lb.pipes) && sent < len(spans); {
			run := spans[sent:]
			if len(lb.pipes) > 1 {
				run = run[:1]
			}
			if !lb.admits(engine.SpansSize(run)) {
				break
			}
			n, v := lb.turn().Out.OfferSpans(nil, lead, wire, run, owner)
			sent += n
			if refused++; v == queue.Accepted {
				refused = 0
			}
		}
		if sent > 0 {
			lb.room.Wake()
			return sent, nil
		}
		if err := lb.wait(ctx, nil); err != nil {
			return 0, err
		}
	}
}

// Status returns the number of pipes, and of calls that wait for room.
func (lb *Balancer) Status() (pipes, waiting int) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	return len(lb.pipes), lb.room.Waiters()
}
