package sockets

import (
	"context"
	"sync"

	"clustermap/internal/engine"
	"clustermap/internal/queue"
	"clustermap/internal/route"
	"clustermap/zmtp"
)

// Rep is a REP socket (RFC 28). It receives a request, fair-queued among its
// peers, and then sends the reply to the peer that sent the request. Recv and
// Send must alternate; otherwise they return ErrState.
//
// The frames of a request up to the first empty one are its envelope, the
// addresses of the brokers that it passed. The socket keeps them and puts them
// before the reply. It discards requests without an empty frame.
//
// All methods are safe for concurrent use, but there is only one request at a
// time. Goroutines that answer independently need one Rep each behind a proxy,
// or a Router.
type Rep struct {
	receiving

	mu       sync.Mutex
	peer     *engine.Peer // the peer that waits for the reply; nil if no request was received
	envelope []byte       // of the request, in wire form
}

// NewRep returns a new REP socket. If options are invalid, the error joins an
// [*OptionError] for each of them.
func NewRep(o Options) (*Rep, error) {
	r := &Rep{}
	p := engine.Pattern{Messages: r.messages, Choose: r.next, Receivable: r.receivable, Sendable: r.sendable}
	p.Lockstep = true
	return made(r, r.init(zmtp.TypeRep, o, &p))
}

// Recv waits for a request and returns it. The caller owns the message. Recv
// waits until the context is done or until Options.RecvTimeout has passed
// (ErrTimeout). If no reply to the previous request was sent, or if another
// goroutine receives a request in the meantime, Recv returns ErrState.
func (r *Rep) Recv(ctx context.Context) (Message, error) { return r.receiving.Recv(ctx) }

// next takes a request from the queue.
func (r *Rep) next() (m queue.Single, skip int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.core.Open(); err != nil {
		return m, 0, err
	}
	if r.peer != nil {
		return m, 0, ErrState
	}
	if m, err = r.core.In.TakeQueued(); err != nil {
		return m, 0, err
	}
	wire := m.Wire()
	skip = route.RequestEnvelope(wire)
	r.peer, r.envelope = engine.PeerOf(m.From), append(r.envelope[:0], wire[:skip]...)
	r.core.In.Tell() // the reply can be sent
	return m, skip, nil
}

// Send sends a reply of one or more frames to the request that was received
// last. It copies the frames. It never waits and does not use the context: if
// the peer has disconnected or its queue is full, the reply is dropped without
// an error, as in libzmq. If there is no request to reply to, Send returns
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
	out := &r.peer.Pipe().Out
	if out.Offer(r.peer.Conn(), r.envelope, frames) != queue.Accepted {
		out.CountDrops(1)
	} else {
		r.core.Queued(engine.BodiesSize(frames))
	}
	r.peer = nil
	if cap(r.envelope) > keepEnvelope {
		r.envelope = nil
	}
	r.core.In.Tell() // the next request can be received
	return nil
}

// TrySend is the same as Send, which never waits.
func (r *Rep) TrySend(frames ...[]byte) error { return r.Send(queue.NoWait, frames...) }

func (r *Rep) receivable() bool { return !r.sendable() && r.core.In.Waiting() }

func (r *Rep) sendable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peer != nil
}

// messages discards everything that is not a request.
func (r *Rep) messages(_ *engine.Pipe, _ *engine.Peer, b *engine.Batch) (bool, error) {
	b.Keep(func(m zmtp.WireMessage) bool { return route.RequestEnvelope(m) > 0 })
	return true, nil
}
