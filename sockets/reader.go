package sockets

import (
	"encoding/binary"

	"clustermap/internal/buf"
	"clustermap/zmtp"
)

// reader turns the octets of one connection into batches. It belongs to the
// connection's reading goroutine.
//
// It reads into a chunk, cuts out whole messages as spans, and hands them on
// as one batch a read. The part of a message at the end stays, and the next
// read goes right behind it; when the chunk has no room left for it, it moves
// to a fresh chunk. A message larger than a chunk gets a buffer that doubles as
// its octets arrive, whatever size was announced.
type reader struct {
	pipe   *pipe
	peer   *Peer
	conn   *conn
	ignore bool // throw away what comes

	decoder     zmtp.Decoder
	chunk       *buf.Chunk
	start, fill int    // octets of chunk that are not decoded yet
	tail        []byte // those octets, while the connection is idle and has no chunk
	batch       Batch
}

const (
	// minRead is the least space worth a read.
	minRead = 4 << 10
	// readAhead is how far beyond a large message a read may go; what it gets
	// there is copied once more.
	readAhead = 32 << 10
	// copyBelow is the size of a read from which its messages keep the chunk
	// pinned; those of smaller reads are copied into a small chunk, so that a
	// queue of a few octets never holds hundreds of kilobytes.
	copyBelow = buf.Small
)

func (r *reader) run(early []byte) error {
	opts := &r.pipe.socket.opts
	r.decoder.SetLimits(zmtp.Limits{MaxMessage: opts.MaxMessageSize})
	defer r.end()
	if len(early) > 0 {
		r.tail = early
		r.space()
		if err := r.received(0); err != nil {
			return err
		}
		r.idle()
	}
	return r.conn.stream.receive(r)
}

func (r *reader) end() {
	r.batch.Release()
	r.pipe.socket.in.mu.Lock()
	r.pipe.socket.in.recycle(r.batch.spans)
	r.pipe.socket.in.mu.Unlock()
	if r.chunk != nil {
		r.chunk.Release()
		r.chunk = nil
	}
}

// space returns the free end of the chunk, exchanging the chunk first if what
// is being received does not fit in it.
func (r *reader) space() []byte {
	if r.chunk == nil {
		r.chunk = buf.Get(max(buf.Large, len(r.tail)+minRead))
		r.start, r.fill = 0, copy(r.chunk.Data(), r.tail)
		if cap(r.tail) > copyBelow {
			r.tail = nil
		}
		r.tail = r.tail[:0]
	}
	data := r.chunk.Data()
	pending := r.fill - r.start
	need := max(r.decoder.Need(), pending+1)
	if r.start+need > len(data) || len(data)-r.fill < minRead {
		size := buf.Large
		if need+minRead > size {
			// Twice what has arrived, never what was merely announced.
			size = min(need+readAhead, max(size, 2*pending))
		}
		switch {
		case size <= len(data) && r.fill < len(data) && r.start == 0:
			// A large message that still fits here for a while.
		case size <= len(data) && r.chunk.Unique():
			copy(data, data[r.start:r.fill])
			r.start, r.fill = 0, pending
		default:
			next := buf.Get(size)
			copy(next.Data(), data[r.start:r.fill])
			r.chunk.Release()
			r.chunk, r.start, r.fill = next, 0, pending
		}
		data = r.chunk.Data()
	}
	return data[r.fill:min(len(data), max(r.start+need+readAhead, r.fill+buf.Large))]
}

// received decodes what can be decoded and hands it on.
func (r *reader) received(n int) error {
	r.fill += n
	data := r.chunk.Data()
	if r.batch.spans == nil {
		r.batch.spans = r.pipe.socket.in.spans()
	}
	spans := r.batch.spans[:0]
	for r.start < r.fill {
		kind, size, err := r.decoder.Next(data[r.start:r.fill])
		if err != nil {
			return err
		}
		if kind == zmtp.NeedMore {
			break
		}
		if kind == zmtp.KindMessage {
			spans = append(spans, Span{Start: uint32(r.start), End: uint32(r.start + size)})
		} else if err := r.command(zmtp.CommandBody(data[r.start : r.start+size])); err != nil {
			return err
		}
		r.start += size
	}
	r.batch.spans = spans
	if len(spans) == 0 {
		return nil
	}
	return r.hand()
}

// hand gives the batch's messages to the socket.
func (r *reader) hand() error {
	b := &r.batch
	first, last := b.spans[0].Start, b.spans[len(b.spans)-1].End
	octets := 0
	for _, s := range b.spans {
		octets += int(s.End - s.Start)
	}
	r.peer.messagesIn.Add(uint64(len(b.spans)))
	r.peer.octetsIn.Add(uint64(octets))
	if r.ignore {
		r.peer.discarded.Add(uint64(len(b.spans)))
		b.spans = b.spans[:0]
		return nil
	}
	if last-first <= copyBelow {
		b.chunk = buf.Get(int(last - first))
		copy(b.chunk.Data(), r.chunk.Data()[first:last])
		for i := range b.spans {
			b.spans[i].Start -= first
			b.spans[i].End -= first
		}
	} else {
		b.chunk = r.chunk
		b.chunk.Retain()
	}
	b.peer = r.peer
	err := r.pipe.socket.pattern.messages(r.pipe, r.peer, b)
	b.Release()
	return err
}

// command answers what every socket answers, and passes on the rest.
func (r *reader) command(body []byte) error {
	c, err := zmtp.ParseCommand(body)
	if err != nil {
		return err
	}
	switch string(c.Name) {
	case "PING":
		_, context, err := zmtp.ParsePing(c.Data)
		if err != nil {
			return err
		}
		r.pipe.out.pong(context)
		return nil
	case "ERROR":
		reason, err := zmtp.ParseError(c.Data)
		if err != nil {
			return err
		}
		return &zmtp.ProtocolError{Op: "ERROR", Reason: reason, Err: zmtp.ErrRefused}
	}
	if r.ignore {
		return nil
	}
	return r.pipe.socket.pattern.command(r.pipe, r.peer, string(c.Name), c.Data)
}

// idle lets go of the chunk: what is left of it is the beginning of one
// message, kept aside if it is small.
func (r *reader) idle() {
	pending := r.fill - r.start
	if pending > copyBelow {
		return
	}
	r.tail = append(r.tail[:0], r.chunk.Data()[r.start:r.fill]...)
	r.chunk.Release()
	r.chunk = nil
}

// pingContext is the context of the n-th PING that asks whether what was sent
// before it has been taken in.
func pingContext(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
