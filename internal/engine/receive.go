package engine

import (
	"bytes"
	"context"

	"clustermap/internal/buf"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Recv takes the next message for the application out of the inbox, and waits for it. The
// message is a copy in the frames of own and their memory; if own has no room for a
// frame, in new memory.
func (s *Socket) Recv(ctx context.Context, own [][]byte) ([][]byte, *Peer, error) {
	var m queue.Single
	var copied [][]byte
	var skip int
	var err error
	if s.pattern.Choose == nil {
		l := s.recvLimit()
		m, copied, err = s.In.Take(ctx, &l, own)
	} else {
		m, skip, err = s.choose(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	if m.Chunk != nil {
		var lead []byte
		if s.Addressed() {
			lead = leadOf(m.From)
		}
		if cap(own) > 0 {
			copied = queue.Refill(own, m.Wire()[skip:], lead)
			m.Chunk.Release()
			s.wants(false, int(m.Span.End-m.Span.Start))
		} else {
			copied = s.Own(&m, skip, lead)
		}
	}
	return copied, PeerOf(m.From), nil
}

// Addressed reports whether received messages begin with the identity of the peer, which is
// what leadOf returns.
func (s *Socket) Addressed() bool { return s.kind == zmtp.TypeRouter || s.kind == zmtp.TypeStream }

func leadOf(c *queue.Conn) []byte { return PeerOf(c).identity }

// choose waits for the message that a REQ or REP chooses. The first skip bytes of the message
// are not the application's. It chooses without waiting, because it holds a mutex that
// others need meanwhile.
func (s *Socket) choose(ctx context.Context) (m queue.Single, skip int, err error) {
	l := s.recvLimit()
	for {
		m, skip, err = s.pattern.Choose()
		if err != queue.ErrWouldBlock {
			return m, skip, err
		}
		if err = s.In.Wait(ctx, &l); err != nil {
			return m, 0, err
		}
	}
}

// TakeBatch exchanges the contents of b for the next queued batch, or for the one
// message that the socket chooses.
func (s *Socket) TakeBatch(ctx context.Context, b *Batch) error {
	b.Release()
	if s.pattern.Choose == nil {
		l := s.recvLimit()
		err := s.In.TakeBatch(ctx, &l, &b.q)
		if len(b.q.Spans) == 1 {
			s.wants(false, b.bytes())
		}
		return err
	}
	m, skip, err := s.choose(ctx)
	if err == nil {
		m.Span.Start += uint32(skip)
		b.q.Chunk, b.q.Spans, b.q.From = m.Chunk, append(b.q.Spans, m.Span), m.From
	}
	return err
}

// PutBack returns the messages of a batch from the given one on to their queue,
// and leaves b empty.
func (s *Socket) PutBack(b *Batch, from int) {
	if from >= b.Len() {
		b.Release()
		return
	}
	q := s.pattern.Notices
	if q == nil {
		q = &b.Peer().pipe.In
	}
	spans := b.q.Spans
	b.q.Cost = b.q.Cost / len(spans) * (len(spans) - from)
	b.q.Spans = spans[:copy(spans, spans[from:])]
	s.In.PutBack(q, &b.q)
}

// Own makes a message that Take has returned the application's, without its first skip bytes,
// and releases it. lead, if not nil, becomes an extra first frame. A large message is not
// copied if the reader has expected that, and otherwise to an exact chunk.
func (s *Socket) Own(m *queue.Single, skip int, lead []byte) [][]byte {
	wire := m.Wire()[skip:]
	if len(wire) < giveFrom {
		frames := Own(wire, lead)
		buf.Allocated(len(wire))
		m.Chunk.Release()
		return frames
	}
	if skip > maxSkipped || m.Chunk.Give(len(m.Wire())) == nil {
		c := buf.Exact(len(wire))
		n := copy(c.Data(), wire)
		m.Chunk.Release()
		wire = c.Give(n)[:n:n]
		s.wants(true, n)
	}
	frames := make([][]byte, 0, wire.Len()+1)
	if lead != nil {
		frames = append(frames, bytes.Clone(lead))
	}
	return wire.AppendFrames(frames)
}

// wants says whether the application wants the memory of messages of a size: it has just
// received one.
func (s *Socket) wants(memory bool, size int) {
	if size >= giveFrom && s.gives.Load() != memory {
		s.gives.Store(memory)
	}
}

// Own copies a wire message into memory of its own: two allocations however
// many frames there are. lead, if not nil, becomes an extra first frame.
func Own(wire zmtp.WireMessage, lead []byte) [][]byte {
	n := wire.Len()
	bytes := make([]byte, 0, len(wire)+len(lead))
	frames := make([][]byte, 0, n+1)
	if lead != nil {
		bytes = append(bytes, lead...)
		frames = append(frames, bytes[:len(lead):len(lead)])
	}
	for len(wire) > 0 {
		var body []byte
		body, wire = wire.Next()
		at := len(bytes)
		bytes = append(bytes, body...)
		frames = append(frames, bytes[at:len(bytes):len(bytes)])
	}
	return frames
}
