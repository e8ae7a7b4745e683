package sockets

import (
	"context"
	"errors"

	"clustermap/internal/buf"
	"clustermap/internal/engine"
	"clustermap/internal/queue"
	"clustermap/internal/route"
)

// forwarder sends the parcel of a flow to one socket: in encoded form if the
// socket's type allows it, and otherwise frame by frame.
type forwarder struct {
	to Socket

	// Scratch memory.
	lead   []byte
	spans  []buf.Span
	frames [][]byte
}

// forward sends messages of p, starting with the given one. Unless it returns
// an error, it handles at least one. It returns the number of messages that
// were sent, or dropped as the socket's own Send would have dropped them.
func (f *forwarder) forward(ctx context.Context, p *parcel, from int) (int, error) {
	switch to := f.to.(type) {
	case *Dealer:
		return f.balance(ctx, &to.balancer, p, from)
	case *Push:
		return f.balance(ctx, &to.balancer, p, from)
	case *Pair:
		return f.balance(ctx, &to.balancer, p, from)
	case *Router:
		return f.route(ctx, to, p, from)
	case *Pub:
		if p.lead == nil {
			return f.publish(ctx, &to.publisher, p, from)
		}
	case *XPub:
		if p.lead == nil {
			return f.publish(ctx, &to.publisher, p, from)
		}
	}
	return f.send(ctx, p, from)
}

// send sends one message through the socket's Send.
func (f *forwarder) send(ctx context.Context, p *parcel, from int) (int, error) {
	f.frames = p.frames(f.frames[:0], from)
	err := f.to.(Sender).Send(ctx, f.frames...)
	clear(f.frames)
	if err == nil || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrUnroutable) {
		return 1, nil // it cannot be sent, and there is no caller to report that to
	}
	return 0, err
}

// balance sends messages to the next peers in turn: each to another one, or all
// together to the only one.
func (f *forwarder) balance(ctx context.Context, lb *route.Balancer, p *parcel, from int) (int, error) {
	wire, spans := p.wire(from)
	f.lead = p.leadFrame(f.lead[:0])
	return lb.SendSpans(ctx, f.lead, wire, spans, p.lender())
}

// route sends messages to the peer that their first frame identifies. A run for
// the same peer is queued at once. If the messages come from another ROUTER,
// the first frame is the identity of its peer.
func (f *forwarder) route(ctx context.Context, r *Router, p *parcel, from int) (int, error) {
	wire, spans := p.wire(from)
	owner := p.lender()
	identity := p.lead
	f.spans = f.spans[:0]
	if p.lead != nil {
		f.spans = append(f.spans, spans...)
	} else {
		for i, s := range spans {
			first, rest := p.batch.Message(from + i).Next()
			if i == 0 {
				if len(rest) == 0 {
					return 1, nil // an identity without a message
				}
				identity = first
			} else if len(rest) == 0 || string(first) != string(identity) {
				break
			}
			s.Start = s.End - uint32(len(rest))
			f.spans = append(f.spans, s)
		}
	}
	count := len(f.spans)
	to := r.routes.Find(identity)
	if to.Pipe == nil {
		return count, r.core.Open()
	}
	n, v := to.Pipe.Out.OfferSpans(to.Conn, nil, wire, f.spans, owner)
	switch {
	case n > 0:
		r.core.Queued(engine.SpansSize(f.spans[:n]))
		return n, nil
	case v == queue.Ended || !r.mandatory.Load():
		to.Pipe.Out.CountDrops(count)
		return count, r.core.Open()
	}
	err := r.await(ctx, to, v, nil)
	if errors.Is(err, ErrUnroutable) {
		return count, nil
	}
	return 0, err
}

// publish sends the messages that are contiguous in memory.
func (f *forwarder) publish(ctx context.Context, to *publisher, p *parcel, from int) (int, error) {
	wire, spans := p.wire(from)
	n := queue.Contiguous(spans)
	if err := to.sendSpans(ctx, wire[spans[0].Start:spans[n-1].End], n, spans[:n], p.lender()); err != nil {
		return 0, err
	}
	return n, nil
}

// lender returns the owner of the parcel's bytes if the bytes may be lent.
func (p *parcel) lender() queue.Owner { return p.batch.engine().Lender() }
