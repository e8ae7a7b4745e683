package sockets

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"

	"clustermap/internal/engine"
	"clustermap/internal/queue"
	"clustermap/internal/route"
	"clustermap/zmtp"
)

// Req is a REQ socket (RFC 28). It sends a request to the next of its peers in
// turn and then receives the reply of that peer. Send and Recv must alternate;
// otherwise they return ErrState.
//
// The socket adds and removes the empty delimiter frame that separates a
// message from the addresses that brokers put before it. It discards messages
// from peers other than the one it has asked, and messages that are not a reply
// to the request.
//
// If a connection made by Connect is lost while a request is pending, the
// request or its reply may be lost, and Recv keeps waiting. With
// Options.ReqRelaxed the application can then send another request; set
// Options.ReqCorrelate too, so that a late reply to the previous request is
// recognized. If the asked peer has gone for good (it was an accepted
// connection, or because of Disconnect or Options.Immediate), the socket
// accepts the next reply of any peer.
//
// All methods are safe for concurrent use, but there is only one request at a
// time. Goroutines that send requests independently need one Req each, or a
// Dealer.
type Req struct {
	receiving
	balancing

	mu       sync.Mutex
	waiting  bool         // a request was sent and its reply has not been received
	asked    *engine.Pipe // the peer that was asked; nil while waiting if it has gone
	id       uint32
	numbered bool   // the request that is waiting has an id
	head     []byte // of the request: its id, if any, and the empty frame
}

// delimiter is the empty frame at the end of an envelope, in wire form.
const delimiter = "\x01\x00"

// NewReq returns a new REQ socket. If options are invalid, the error joins an
// [*OptionError] for each of them.
func NewReq(o Options) (*Req, error) {
	r := &Req{id: rand.Uint32()}
	p := engine.Pattern{
		Removed: r.removed, Attach: r.attach, Detach: r.detach, Messages: r.messages,
		Choose: r.next, Receivable: r.receivable, Sendable: r.sendable,
	}
	p.Lockstep, p.Once = true, true
	return made(r, r.start(&r.socket, zmtp.TypeReq, o, p))
}

// Send sends a request of one or more frames to the next peer in turn whose
// queue has room. It copies the frames. If no peer has room, or there is no
// peer, Send waits until the context is done or until Options.SendTimeout has
// passed (ErrTimeout). If it returns an error, the request was not sent.
//
// While the previous request is waiting for its reply, Send returns ErrState;
// with Options.ReqRelaxed it abandons that request instead.
func (r *Req) Send(ctx context.Context, frames ...[]byte) error {
	if err := r.check(frames); err != nil {
		return err
	}
	l := r.core.SendLimit()
	for {
		sent, err := r.request(frames)
		if sent || err != nil {
			return err
		}
		if err := r.balancer.Await(ctx, &l); err != nil {
			return err
		}
	}
}

// TrySend is like Send but returns ErrWouldBlock instead of waiting.
func (r *Req) TrySend(frames ...[]byte) error { return r.Send(queue.NoWait, frames...) }

// request sends a request if a peer has room.
func (r *Req) request(frames [][]byte) (sent bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting && !r.opts().ReqRelaxed {
		return false, ErrState
	}
	if !r.balancer.HasRoom() {
		return false, nil
	}
	// Messages that have arrived so far are not replies to this request. This must happen
	// before the request is sent, because the reply may be quick.
	r.core.In.Discard()
	for range maxStale {
		if !r.core.In.Poll() {
			break
		}
		r.core.In.Discard()
	}
	r.head = r.head[:0]
	if r.numbered = r.opts().ReqCorrelate; r.numbered {
		r.id++
		r.head = zmtp.AppendHeader(r.head, zmtp.FlagMore, 4)
		r.head = binary.NativeEndian.AppendUint32(r.head, r.id)
	}
	r.head = append(r.head, delimiter...)
	p := r.balancer.Try(r.head, frames)
	r.waiting, r.asked = p != nil, p
	return p != nil, nil
}

// Recv waits for the reply and returns it. The caller owns the message. Recv
// waits until the context is done or until Options.RecvTimeout has passed
// (ErrTimeout). If no request is waiting for a reply, it returns ErrState.
func (r *Req) Recv(ctx context.Context) (Message, error) { return r.receiving.Recv(ctx) }

// next looks for the reply among the queued messages.
func (r *Req) next() (m queue.Single, skip int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if err := r.core.Open(); err != nil {
			return m, 0, err
		}
		if !r.waiting {
			return m, 0, ErrState
		}
		if m, err = r.core.In.TakeQueued(); err != nil {
			return m, 0, err
		}
		if r.asked == nil || engine.PeerOf(m.From).Pipe() == r.asked {
			if id, skip, ok := route.ReplyEnvelope(m.Wire()); ok && r.expects(id) {
				r.waiting, r.asked = false, nil
				r.core.In.Tell() // the next request can be sent
				return m, skip, nil
			}
		}
		m.From.Discard(1)
		m.Chunk.Release()
	}
}

// expects reports whether a reply with the given request ID, or nil for none,
// belongs to the pending request.
func (r *Req) expects(id []byte) bool {
	if !r.numbered {
		return id == nil
	}
	return id != nil && binary.NativeEndian.Uint32(id) == r.id
}

func (r *Req) sendable() bool {
	r.mu.Lock()
	may := !r.waiting || r.opts().ReqRelaxed
	r.mu.Unlock()
	return may && r.balancer.HasRoom()
}

func (r *Req) receivable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting && r.core.In.Waiting()
}

func (r *Req) attach(p *engine.Pipe, _ *engine.Peer) error {
	r.probe(p)
	r.balancer.Attached(p)
	return nil
}

func (r *Req) detach(p *engine.Pipe, _ *engine.Peer) {
	r.balancer.Detached(p)
	if p.Transient() {
		r.gone(p)
	}
}

func (r *Req) removed(p *engine.Pipe) {
	r.balancer.Remove(p)
	r.gone(p)
}

// gone allows any peer to answer the request that was sent to p.
func (r *Req) gone(p *engine.Pipe) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked == p {
		r.asked = nil
	}
}

// messages closes the connection to a peer that sends a message that cannot be
// a reply.
func (r *Req) messages(p *engine.Pipe, _ *engine.Peer, b *engine.Batch) (bool, error) {
	if p.Inproc() {
		return true, nil // there is no connection to close; next skips the message
	}
	for i := range b.Len() {
		if _, _, ok := route.ReplyEnvelope(b.Message(i)); !ok {
			b.SetSpans(b.Spans()[:i])
			return true, errNoReply
		}
	}
	return true, nil
}

var errNoReply = &zmtp.ProtocolError{
	Op: "reply", Reason: "message to a REQ has no empty frame before its body", Err: zmtp.ErrMalformed,
}
