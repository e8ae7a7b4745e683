package chp

import (
	"context"

	"clustermap/internal/buf"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// publisher publishes updates in the form of records.
type publisher interface {
	SendSpans(ctx context.Context, wire []byte, spans []sockets.Span, owner sockets.Owner) error
	SendWire(ctx context.Context, wire []byte, messages int, owner sockets.Owner) error
}

// publisher returns a publisher that sends in this dialect through a socket.
func (d dialect) publisher(p *sockets.Pub) publisher {
	if d.three {
		return &threePublisher{Pub: p}
	}
	return p
}

// threePublisher publishes records as messages of three frames. It is not safe for
// concurrent use.
type threePublisher struct {
	*sockets.Pub
	spans []sockets.Span // scratch
}

// SendSpans publishes copies of the records.
func (p *threePublisher) SendSpans(ctx context.Context, wire []byte, spans []sockets.Span, _ sockets.Owner) error {
	c := buf.Get(len(wire))
	defer c.Release()
	out := c.Data()[:0]
	p.spans = p.spans[:0]
	for _, span := range spans {
		size := span.End - span.Start
		start := len(out)
		out = appendThree(out, wire[:size])
		p.spans = append(p.spans, sockets.Span{Start: uint32(start), End: uint32(len(out))})
		wire = wire[size:]
	}
	return p.Pub.SendSpans(ctx, out, p.spans, c)
}

// collector is the socket on which a server receives updates: SUB, or PULL before model
// 6.
type collector interface {
	binder
	RecvBatch(ctx context.Context, b *sockets.Batch) error
	Peers() []sockets.PeerStats
	Reads() uint64
	Ping()
	Close() error
}

// binder is a socket that a server binds.
type binder interface {
	Bind(ctx context.Context, endpoint string) error
	Unbind(endpoint string) error
	LastEndpoint() string
}

// newCollector returns the collector. o.Prepare is called with records.
func (d dialect) newCollector(o sockets.Options, refused *refusals) (collector, error) {
	if prepare := o.Prepare; d.three {
		o.Prepare = func(b *sockets.Batch) {
			widen(b, refused, nil)
			prepare(b)
		}
	}
	if !d.full {
		p, err := sockets.NewPull(o)
		if err != nil {
			return nil, err
		}
		return p, nil
	}
	s, err := sockets.NewSub(o)
	if err != nil {
		return nil, err
	}
	return s, s.Subscribe("")
}

// parseRequest parses a snapshot request. ours reports that the client is of this
// package.
func (d dialect) parseRequest(m zmtp.WireMessage, ours bool) (want, error) {
	if d.subtrees {
		w, err := parseRequest(m, ours && d.full)
		w.three = d.three
		return w, err
	}
	if command, rest := m.Next(); string(command) != "ICANHAZ?" || len(rest) > 0 {
		return want{}, errWholeRequest
	}
	return want{three: d.three}, nil
}
