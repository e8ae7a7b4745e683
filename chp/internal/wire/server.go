package wire

import (
	"context"
	"encoding/binary"

	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Publisher publishes updates in the form of records. It is not safe for concurrent use.
type Publisher interface {
	SendSpans(ctx context.Context, wire []byte, spans []buf.Span, owner hooks.Owner) error
	// Heartbeat publishes HUGZ with the sequence of the last published update, in the
	// dialects that have it.
	Heartbeat(sequence int64)
}

// NewPublisher returns a publisher that sends in this dialect through a socket.
func (d Dialect) NewPublisher(p *sockets.Pub) Publisher {
	if d.Three {
		return &threePublisher{recordPublisher: recordPublisher{Pub: p}}
	}
	r := &recordPublisher{Pub: p}
	if d.Full {
		r.hugz = zmtp.AppendMessage(nil, []byte("HUGZ"), make([]byte, kvmsg.SequenceSize), nil, nil, nil)
	}
	return r
}

// recordPublisher publishes records as they are.
type recordPublisher struct {
	*sockets.Pub
	hugz []byte // the wire form of the heartbeat; nil if none is sent
}

func (p *recordPublisher) SendSpans(ctx context.Context, wire []byte, spans []buf.Span, owner hooks.Owner) error {
	return hooks.SendSpans(ctx, p.Pub, wire, spans, owner)
}

// Heartbeat publishes HUGZ.
func (p *recordPublisher) Heartbeat(sequence int64) {
	if p.hugz != nil {
		binary.BigEndian.PutUint64(p.hugz[hugzSequence:], uint64(sequence))
		// The publisher disconnects who does not read, so this does not wait; it fails only
		// once the publisher is closed.
		_ = hooks.SendWire(context.Background(), p.Pub, p.hugz, 1, nil)
	}
}

// hugzSequence is the offset of the sequence in the wire form of HUGZ.
const hugzSequence = 2 + len("HUGZ") + 2

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
	Events() sockets.PollEvents
	Peers() []sockets.PeerStats
	SetOptions(change func(*sockets.Options)) error
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
