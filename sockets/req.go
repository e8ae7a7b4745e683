package sockets

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Req is a REQ socket (RFC 28): it sends a request to the next of its peers in
// turn, and then receives the reply of that peer. Send and Recv alternate; a
// call out of turn is refused with ErrState.
//
// The empty frame that separates a request from the addresses put before it on
// the way is added and removed here. What comes from another peer than the one
// asked, or is no reply to the request, is thrown away.
//
// While the peer is asked, the loss of the connection that Connect made does not
// change anything: the request, or its reply, may be lost with it, and Recv
// waits. With Options.ReqRelaxed another request can be sent all the same, best
// together with Options.ReqCorrelate, which tells late replies to the former
// one apart. When the asked peer has gone for good (it had connected to us; or
// Disconnect, or Options.Immediate), the next reply of any peer is taken.
//
// All methods are safe for concurrent use, but there is one request at a time:
// goroutines that ask independently of one another need a Req each, or a Dealer.
type Req struct {
	socket
	balancer balancer

	mu      sync.Mutex
	waiting bool  // a request was sent, whose reply was not received
	asked   *pipe // the peer that was asked; nil while waiting: it has gone
	id      uint32
	head    []byte // of the request: its id, if any, and the empty frame
}

// delimiter is the empty frame that ends an envelope.
const delimiter = "\x01\x00"

// NewReq makes a REQ socket. It returns all faults of the options as one error.
func NewReq(o Options) (*Req, error) {
	r := &Req{id: rand.Uint32()}
	if err := r.init(zmtp.REQ, o, (*reqPattern)(r)); err != nil {
		return nil, err
	}
	r.balancer.init(&r.socket)
	return r, nil
}

// Send sends a request, of at least one frame. It copies the frames. It waits
// while there is no peer or every peer's queue is full, until the context ends
// or for Options.SendTimeout (ErrTimeout); the request is then not sent. While
// the last request waits for its reply, Send returns ErrState, or with
// Options.ReqRelaxed forgets that one.
func (r *Req) Send(ctx context.Context, frames ...[]byte) error {
	if err := r.check(frames); err != nil {
		return err
	}
	l := queue.Limit{Patience: r.opts.SendTimeout}
	for {
		sent, err := r.request(frames)
		if sent || err != nil {
			return err
		}
		if err := r.balancer.await(ctx, &l); err != nil {
			return err
		}
	}
}

// TrySend is Send without waiting: if it would have to, it returns
// ErrWouldBlock.
func (r *Req) TrySend(frames ...[]byte) error { return r.Send(queue.NoWait, frames...) }

// maxStale bounds how often a request looks for what came unread before it, so
// that a peer which sends without end does not hold it up.
const maxStale = 8

// request sends a request if a peer has room.
func (r *Req) request(frames [][]byte) (sent bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting && !r.opts.ReqRelaxed {
		return false, ErrState
	}
	if !r.balancer.hasRoom() {
		return false, nil
	}
	// Whatever has come until now is no reply to what is asked now. Afterwards
	// it would be too late: the reply may be quick.
	r.in.discard()
	for range maxStale {
		if !r.in.poll() {
			break
		}
		r.in.discard()
	}
	r.head = r.head[:0]
	if r.opts.ReqCorrelate {
		r.id++
		r.head = zmtp.AppendHeader(r.head, zmtp.FlagMore, 4)
		r.head = binary.NativeEndian.AppendUint32(r.head, r.id)
	}
	r.head = append(r.head, delimiter...)
	p := r.balancer.try(r.head, frames)
	r.waiting, r.asked = p != nil, p
	return p != nil, nil
}

// Recv waits for the reply, until the context ends or for Options.RecvTimeout
// (ErrTimeout), and returns it. The caller owns it. When no request waits for a
// reply, it returns ErrState.
func (r *Req) Recv(ctx context.Context) (Message, error) {
	m, _, err := r.in.recvNext(ctx, r)
	return m, err
}

// TryRecv is Recv without waiting: if the reply is not there, it returns
// ErrWouldBlock.
func (r *Req) TryRecv() (Message, error) { return r.Recv(queue.NoWait) }

// RecvBatch waits as Recv does, and lends the reply as a batch of one message:
// see [Batch].
func (r *Req) RecvBatch(ctx context.Context, b *Batch) error {
	return r.in.lendNext(ctx, r, b)
}

// next looks for the reply among what is queued.
func (r *Req) next() (m single, skip int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if err := r.open(); err != nil {
			return m, 0, err
		}
		if !r.waiting {
			return m, 0, ErrState
		}
		if m, err = r.in.takeQueued(); err != nil {
			return m, 0, err
		}
		if r.asked == nil || m.peer.pipe == r.asked {
			if id, skip, ok := replyEnvelope(m.wire()); ok && r.expects(id) {
				r.waiting, r.asked = false, nil
				r.in.watch.tell() // the next request can be sent
				return m, skip, nil
			}
		}
		m.discard()
	}
}

// expects says that a reply with a request id, or none, is for the request.
func (r *Req) expects(id []byte) bool {
	if !r.opts.ReqCorrelate {
		return id == nil
	}
	return id != nil && binary.NativeEndian.Uint32(id) == r.id
}

// replyEnvelope takes a reply apart: it begins with a request id of four bytes
// or not, then comes the empty frame, and at least one more.
func replyEnvelope(m zmtp.Message) (id []byte, skip int, ok bool) {
	first, rest := m.Next()
	if len(first) == 4 && len(rest) > 0 {
		id = first
		first, rest = rest.Next()
	}
	return id, len(m) - len(rest), len(first) == 0 && len(rest) > 0
}

// reqPattern is Req as the engine sees it.
type reqPattern Req

func (r *reqPattern) added(p *pipe)  { r.balancer.added(p) }
func (r *reqPattern) roomy(*pipe)    { r.balancer.roomy() }
func (r *reqPattern) sendable() bool { return r.mayAsk() && r.balancer.hasRoom() }

func (r *reqPattern) receivable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting && r.in.waiting()
}

func (r *reqPattern) mayAsk() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.waiting || r.opts.ReqRelaxed
}

func (r *reqPattern) traits() traits {
	return traits{keeps: !r.opts.Immediate, lockstep: true, maxMessage: maxMessage}
}

func (r *reqPattern) attach(p *pipe, _ *Peer) error {
	p.probe()
	r.balancer.attached(p)
	return nil
}

func (r *reqPattern) detach(p *pipe, _ *Peer) {
	r.balancer.detached(p)
	if !p.lasting || r.opts.Immediate {
		r.gone(p)
	}
}

func (r *reqPattern) removed(p *pipe) {
	r.balancer.remove(p)
	r.gone(p)
}

// gone lets any peer answer what p was asked.
func (r *reqPattern) gone(p *pipe) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked == p {
		r.asked = nil
	}
}

// messages ends the connection to a peer that sends what is no reply at all.
func (r *reqPattern) messages(p *pipe, _ *Peer, b *Batch) (bool, error) {
	if p.inproc() {
		return true, nil // no connection to end: next passes over it
	}
	for i := range b.Len() {
		if _, _, ok := replyEnvelope(b.Message(i)); !ok {
			b.SetSpans(b.Spans()[:i])
			return true, errNoReply
		}
	}
	return true, nil
}

var errNoReply = &zmtp.ProtocolError{
	Op: "reply", Reason: "a message to a REQ has no empty frame before its body", Err: zmtp.ErrMalformed,
}

func (r *reqPattern) command(*pipe, *Peer, string, []byte) error { return nil }
