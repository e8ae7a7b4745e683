package collect

import (
	"context"
	"errors"
	"math"
	"sync"

	"clustermap/chp/internal/order"
	"clustermap/chp/internal/rights"
	"clustermap/chp/internal/txn"
	"clustermap/internal/buf"
	"clustermap/internal/fifo"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// requestTag marks a span as a request. A key can have the same tag by chance, so what the
// message begins with decides.
const requestTag = math.MaxUint64

func isRequest(span buf.Span, wire []byte) bool {
	return span.Tag == requestTag && txn.IsRequest(wire[span.Start:span.End])
}

// check sets r to a request, and returns why the server does not judge it. The client is told.
func (c *Clients) check(r *txn.Request, m []byte, from *sockets.Peer, role *rights.Role) error {
	if !r.Parse(m) {
		return errRequest
	}
	err := r.Check(c.o.MaxValue)
	if err == nil && role != nil {
		err = c.mayAsk(role, r)
	}
	if err == nil {
		return nil
	}
	if peer := c.members.snapshotPeer(from); peer != nil {
		a := txn.Answer{Number: r.Number, Status: txn.StatusRefused, Sequence: int64(reasonOf(err))}
		c.notifier.notify(&refusalNotice{peer: peer, wire: txn.AppendAnswers(nil, a.Append(nil)), messages: 1})
	}
	return err
}

var errRequest = &kvmsg.MessageError{Reason: kvmsg.ReasonFrameCount, Detail: "malformed request"}

func reasonOf(err error) kvmsg.Reason {
	var message *kvmsg.MessageError
	if errors.As(err, &message) {
		return message.Reason
	}
	return kvmsg.ReasonFrameCount
}

// transact passes requests of a client to the sequencer. It returns false if the context has
// ended before.
func (c *Clients) transact(ctx context.Context, b *hooks.Batch, spans []buf.Span, from sender) bool {
	if from.ended || !from.Numbered {
		return true // the client sends them again over another connection
	}
	peer := (*sockets.Peer)(b.Peer())
	for len(spans) > 0 {
		if c.answers.room(ctx) != nil {
			return false
		}
		to := c.members.snapshotPeer(peer)
		if c.o.Relay != nil && c.o.Relay.Relays() {
			if c.o.Order.Stale(from.From) {
				peer.Disconnect(order.ErrNotActive)
				return true
			}
			return c.o.Relay.Requests(ctx, b.Wire(), spans, from.From, func(answers []byte) {
				if to := c.members.snapshotPeer(peer); to != nil && len(answers) > 0 {
					c.notifier.notify(&refusalNotice{peer: to, wire: txn.AppendAnswers(nil, answers), messages: 1})
				}
			}, func() { peer.Disconnect(order.ErrNotActive) }) == nil
		}
		wire, w, n := c.o.Order.Transact(b, spans, from.From, c.answers.values(to), c.answers.scratch[:0])
		if c.answers.scratch = wire; n == 0 {
			if c.o.Order.Room(ctx) != nil {
				return false
			}
			continue
		}
		spans = spans[n:]
		if to != nil && len(wire) > 0 {
			c.answers.send(to, wire, w)
		}
	}
	return true
}

// answers are sent when what they say is published. Until then they are kept here, bounded over
// all clients, and a goroutine waits.
type answers struct {
	order    *order.Sequencer
	relay    Relay // or nil
	notifier *notifier
	scratch  []byte // of the collector's goroutine
	waiting  sync.WaitGroup
	ctx      context.Context
	cancel   context.CancelFunc

	mu    sync.Mutex
	queue fifo.Queue[unsent]    // the goroutine runs while it has some
	bytes int                   // of queue
	owed  map[*sockets.Peer]int // of them, those to each client
	more  chan struct{}         // closed when there is room; nil while nothing waits for that
}

// unsent is a message with answers.
type unsent struct {
	to   *sockets.Peer
	wire []byte
	when order.Written

	// confirm says that some requests were not made. Of a cluster that is so only if this server led after it had judged them:
	// otherwise what they were judged against may be old.
	confirm bool
}

func newAnswers(o *order.Sequencer, r Relay, n *notifier) *answers {
	a := &answers{order: o, relay: r, notifier: n, owed: map[*sockets.Peer]int{}}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// values returns the bytes of values that the next answers to a client may have. Only send adds to
// what is kept for requests, in the same goroutine.
func (a *answers) values(to *sockets.Peer) int {
	a.mu.Lock()
	waiting, all := a.owed[to], a.bytes
	a.mu.Unlock()
	// What moves on in between counts twice.
	return a.notifier.room(to, waiting, all)
}

// send sends answers when w is published. It copies them.
func (a *answers) send(to *sockets.Peer, body []byte, w order.Written) {
	a.mu.Lock()
	defer a.mu.Unlock()
	wire := txn.AppendAnswers(nil, body)
	confirm := a.relay != nil && !txn.AllMade(body)
	if a.queue.Len() == 0 {
		if err := a.order.Published(wake.Ended, w); err == nil && !confirm {
			a.notifier.notify(&refusalNotice{peer: to, wire: wire, messages: 1})
			return
		}
		if a.ctx.Err() != nil {
			return // the server ends
		}
		a.waiting.Go(a.run)
	}
	a.queue.Push(unsent{to, wire, w, confirm})
	a.bytes += len(wire)
	a.owed[to] += len(wire)
}

// run sends the answers in the queue, until it is empty.
func (a *answers) run() {
	judged := 0     // of the queue: they were judged before the last call of confirmed
	var led bool    // its result, for
	var term uint64 // this term
	for {
		a.mu.Lock()
		next := *a.queue.At(0)
		all := a.queue.Len()
		a.mu.Unlock()
		// Otherwise the term has ended, and the client asks again.
		good := a.order.Published(a.ctx, next.when) == nil
		if good && next.confirm {
			if judged == 0 || term != next.when.Term {
				judged, term = all, next.when.Term
				led, _ = a.relay.Confirm(a.ctx, term)
			}
			good = led
		}
		judged = max(0, judged-1)
		if good {
			a.notifier.notify(&refusalNotice{peer: next.to, wire: next.wire, messages: 1})
		}
		a.mu.Lock()
		a.queue.Pop()
		a.bytes -= len(next.wire)
		if a.owed[next.to] -= len(next.wire); a.owed[next.to] == 0 {
			delete(a.owed, next.to)
		}
		if a.more != nil && a.bytes < maxAnswers {
			close(a.more)
			a.more = nil
		}
		empty := a.queue.Len() == 0
		a.mu.Unlock()
		if empty {
			return
		}
	}
}

// room waits until more answers may be kept.
func (a *answers) room(ctx context.Context) error {
	a.mu.Lock()
	for a.bytes >= maxAnswers {
		if a.more == nil {
			a.more = make(chan struct{})
		}
		more := a.more
		a.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
		a.mu.Lock()
	}
	a.mu.Unlock()
	return nil
}

// close ends the goroutine and waits for it.
func (a *answers) close() {
	a.mu.Lock()
	a.cancel() // with mu held, so that no goroutine starts
	a.mu.Unlock()
	a.waiting.Wait()
}
