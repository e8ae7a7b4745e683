package sockets

import (
	"context"
	"sync"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Rep is a REP socket (RFC 28): it receives a request, fairly from all its
// peers, and then sends the reply to whom the request came from. Recv and Send
// alternate; a call out of turn is refused with ErrState.
//
// The frames before the request's body, up to the empty one, say by which way it
// came. They are kept here and put before the reply. A request without an empty
// frame is thrown away.
//
// All methods are safe for concurrent use, but there is one request at a time:
// goroutines that answer independently of one another need a Rep each behind a
// proxy, or a Router.
type Rep struct {
	socket

	mu       sync.Mutex
	peer     *Peer  // who waits for the reply, nil before a request was received
	envelope []byte // of the request, in wire form
}

// keepEnvelope is the largest buffer that is kept for the next envelope.
const keepEnvelope = 4 << 10

// NewRep makes a REP socket. It returns all faults of the options as one error.
func NewRep(o Options) (*Rep, error) {
	r := &Rep{}
	if err := r.init(zmtp.REP, o, (*repPattern)(r)); err != nil {
		return nil, err
	}
	return r, nil
}

// Recv waits for a request, until the context ends or for Options.RecvTimeout
// (ErrTimeout), and returns it. The caller owns it. When the last request was
// not replied to, it returns ErrState; so it does when meanwhile another
// goroutine has received one.
func (r *Rep) Recv(ctx context.Context) (Message, error) {
	m, _, err := r.in.recvNext(ctx, r)
	return m, err
}

// TryRecv is Recv without waiting: if there is no request, it returns
// ErrWouldBlock.
func (r *Rep) TryRecv() (Message, error) { return r.Recv(queue.NoWait) }

// RecvBatch waits as Recv does, and lends the request as a batch of one
// message: see [Batch].
func (r *Rep) RecvBatch(ctx context.Context, b *Batch) error {
	return r.in.lendNext(ctx, r, b)
}

// next takes a request out of what is queued.
func (r *Rep) next() (m single, skip int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.open(); err != nil {
		return m, 0, err
	}
	if r.peer != nil {
		return m, 0, ErrState
	}
	if m, err = r.in.takeQueued(); err != nil {
		return m, 0, err
	}
	wire := m.wire()
	skip = requestEnvelope(wire)
	r.peer, r.envelope = m.peer, append(r.envelope[:0], wire[:skip]...)
	r.in.watch.tell() // the reply can be sent
	return m, skip, nil
}

// Send sends the reply to the request that was received last, of at least one
// frame. It copies the frames. It never waits, so the context does not matter:
// when the peer has disconnected, or does not take its replies, the reply is
// dropped, without an error, as ZeroMQ has it. Without a request Send returns
// ErrState.
func (r *Rep) Send(_ context.Context, frames ...[]byte) error {
	if err := r.check(frames); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.peer == nil {
		return ErrState
	}
	out := &r.peer.pipe.out
	if out.offerBehind(r.peer, r.envelope, frames) != accepted {
		out.countDrops(1)
	}
	r.peer = nil
	if cap(r.envelope) > keepEnvelope {
		r.envelope = nil
	}
	r.in.watch.tell() // the next request can be received
	return nil
}

// TrySend is Send.
func (r *Rep) TrySend(frames ...[]byte) error { return r.Send(queue.NoWait, frames...) }

// requestEnvelope returns the size of a request's envelope: the frames up to the
// first empty one, behind which there must be one more. It is 0 for what is no
// request.
func requestEnvelope(m zmtp.Message) int {
	for rest := m; len(rest) > 0; {
		var frame []byte
		if frame, rest = rest.Next(); len(frame) == 0 && len(rest) > 0 {
			return len(m) - len(rest)
		}
	}
	return 0
}

// repPattern is Rep as the engine sees it.
type repPattern Rep

func (r *repPattern) added(*pipe)    {}
func (r *repPattern) removed(*pipe)  {}
func (r *repPattern) roomy(*pipe)    {}
func (r *repPattern) traits() traits { return traits{lockstep: true, maxMessage: maxMessage} }

func (r *repPattern) receivable() bool { return !r.sendable() && r.in.waiting() }

func (r *repPattern) sendable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peer != nil
}

func (r *repPattern) attach(*pipe, *Peer) error { return nil }
func (r *repPattern) detach(*pipe, *Peer)       {}

// messages throws away what is no request.
func (r *repPattern) messages(_ *pipe, peer *Peer, b *Batch) (bool, error) {
	kept := b.spans[:0]
	for i, span := range b.spans {
		if requestEnvelope(b.Message(i)) > 0 {
			kept = append(kept, span)
		}
	}
	if n := len(b.spans) - len(kept); n > 0 {
		peer.discarded.Add(uint64(n))
		b.spans = kept
	}
	return true, nil
}

func (r *repPattern) command(*pipe, *Peer, string, []byte) error { return nil }
