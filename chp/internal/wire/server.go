package wire

import (
	"context"

	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/sockets"
)

// Publisher publishes updates in the form of records. It is not safe for concurrent use.
type Publisher interface {
	SendSpans(ctx context.Context, wire []byte, spans []buf.Span, owner hooks.Owner) error
	SendWire(ctx context.Context, wire []byte, messages int, owner hooks.Owner) error
}

// NewPublisher returns a publisher that sends in this dialect through a socket.
func (d Dialect) NewPublisher(p *sockets.Pub) Publisher {
	if d.Three {
		return &threePublisher{recordPublisher: recordPublisher{p}}
	}
	return recordPublisher{p}
}

// recordPublisher publishes records as they are.
type recordPublisher struct{ *sockets.Pub }

func (p recordPublisher) SendWire(ctx context.Context, wire []byte, messages int, owner hooks.Owner) error {
	return hooks.SendWire(ctx, p.Pub, wire, messages, owner)
}

func (p recordPublisher) SendSpans(ctx context.Context, wire []byte, spans []buf.Span, owner hooks.Owner) error {
	return hooks.SendSpans(ctx, p.Pub, wire, spans, owner)
}

// threePublisher publishes records as messages of three frames.
type threePublisher struct {
	recordPublisher
	spans []buf.Span // scratch
}

// SendSpans publishes copies of the records.
func (p *threePublisher) SendSpans(ctx context.Context, wire []byte, spans []buf.Span, _ hooks.Owner) error {
	c := buf.Get(len(wire))
	defer c.Release()
	out := c.Data()[:0]
	p.spans = p.spans[:0]
	for _, span := range spans {
		size := span.End - span.Start
		start := len(out)
		out = appendThree(out, wire[:size])
		p.spans = append(p.spans, buf.Span{Start: uint32(start), End: uint32(len(out))})
		wire = wire[size:]
	}
	return p.recordPublisher.SendSpans(ctx, out, p.spans, c)
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

// NewCollector returns the collector. records is called with records (hooks.Prepare); refused
// is called with the errors of messages that are none.
func (d Dialect) NewCollector(o sockets.Options, records func(*hooks.Batch), refused func(error)) (Collector, error) {
	prepare := (&Session{dialect: d}).Prepare(records, refused)
	if !d.Full {
		p, err := sockets.NewPull(o)
		if err != nil {
			return nil, err
		}
		hooks.Prepare(p, prepare)
		return p, nil
	}
	s, err := sockets.NewSub(o)
	if err != nil {
		return nil, err
	}
	hooks.Prepare(s, prepare)
	return s, s.Subscribe("")
}
