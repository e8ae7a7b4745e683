package wire

import (
	"context"

	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/sockets"
)

// Publisher publishes updates in the form of records. It is not safe for concurrent use.
type Publisher interface {
	SendSpans(ctx context.Context, wire []byte, spans []sockets.Span, owner sockets.Owner) error
	SendWire(ctx context.Context, wire []byte, messages int, owner sockets.Owner) error
}

// NewPublisher returns a publisher that sends in this dialect through a socket.
func (d Dialect) NewPublisher(p *sockets.Pub) Publisher {
	if d.Three {
		return &threePublisher{Pub: p}
	}
	return recordPublisher{p}
}

// recordPublisher publishes records as they are.
type recordPublisher struct{ *sockets.Pub }

func (p recordPublisher) SendSpans(ctx context.Context, wire []byte, spans []sockets.Span, owner sockets.Owner) error {
	return hooks.SendSpans(ctx, p.Pub, wire, spans, owner)
}

// threePublisher publishes records as messages of three frames.
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
	return hooks.SendSpans(ctx, p.Pub, out, p.spans, c)
}

// Collector is the socket on which a server receives updates: SUB, or PULL before model
// 6.
type Collector interface {
	Bind(ctx context.Context, endpoint string) error
	Unbind(endpoint string) error
	LastEndpoint() string
	RecvBatch(ctx context.Context, b *sockets.Batch) error
	Peers() []sockets.PeerStats
	Reads() uint64
	Ping()
	Close() error
}

// NewCollector returns the collector. o.Prepare is called with records; refused is called
// with the errors of messages that are none.
func (d Dialect) NewCollector(o sockets.Options, refused func(error)) (Collector, error) {
	o.Prepare = (&Session{dialect: d}).Prepare(o.Prepare, refused)
	if !d.Full {
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
