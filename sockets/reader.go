package sockets

import (
	"net"
	"time"

	"clustermap/internal/buf"
	"clustermap/zmtp"
)

// reader turns the bytes of one connection into batches. It belongs to the
// connection's reading goroutine.
//
// It reads into a chunk, cuts out whole messages as spans, and hands them on
// as one batch a read. The part of a message at the end stays, and the next
// read goes right behind it; when the chunk has no room left for it, it moves
// to a fresh chunk. Chunks are larger where messages are: so large that several
// of the size of the last ones fit. A message larger than that gets a buffer
// that doubles as its bytes arrive, whatever size was announced.
type reader struct {
	pipe *pipe
	peer *Peer
	conn *conn

	codec  zmtp.Codec // translates what comes, nil for plain frames
	ignore bool       // throw away what comes
	traits traits     // of the socket type

	holding *holding // in socket.incomplete; nil before the first large message

	newcomer *newcomer // the peer, while its messages wait until it is admitted; else nil

	decoder     zmtp.Decoder
	chunk       *buf.Chunk
	start, fill int    // bytes of chunk that are not decoded yet
	tail        []byte // those bytes, while the connection is idle and has no chunk
	unpaid      int    // size of the chunk until a queued batch has been charged for it
	delivered   bool   // the read that is under way brought a message for the application
	batch       Batch  // messages decoded and not handed on yet
	bytes       int    // their size
	usual       int    // size of a message, as of late

	lends    bool      // to receive calls; see loan
	unwaited int       // bytes read since it waited for some
	waiting  time.Time // since when it waits for some; zero: it does not
	quick    bool      // the last wait was a short one
	borrowed bool      // one of them reads
	loan     *loan
	ttl      time.Duration // from the PING that came last, unless bytes came since
}

const (
	// chunkShare is how many messages of the usual size a chunk has room for,
	// unless that is more than maxChunk: the beginning of the message at its
	// end is copied to the next chunk.
	chunkShare = 8
	maxChunk   = 1 << 20
	// maxUsual bounds the usual size: the largest that is pooled.
	maxUsual = 4<<20 - 2*readAhead
	// minRead is the least space worth a read.
	minRead = 4 << 10
	// readAhead is how far beyond a large message a read may go; what it gets
	// there is copied once more.
	readAhead = 32 << 10
	// keepTail is the largest beginning of a message that is kept aside.
	keepTail = 4 << 10
	// idlePart is how many times larger than what is in it an idle
	// connection's chunk may be: as far as the sizes of chunks lie apart.
	idlePart = 8
	// stayPart is how much of a chunk a batch must fill to stay in it. Less is
	// copied, so that a queue holds no more than so many times its messages:
	// a quiet connection's chunk holds one batch.
	stayPart = 8
	// spanCost is the memory of a span.
	spanCost = 16
	// pingUnit is the unit of a PING's ttl.
	pingUnit = 100 * time.Millisecond
	// keepSpans is the largest span slice that an idle connection keeps.
	keepSpans = 64
)

// maxMessage is the largest message that can be received. On 32-bit systems it is
// 512 MiB, since a buffer that doubles has to fit in the address space. On
// others it is less than 4 GiB, so that a Span can count the bytes of a chunk.
const maxMessage = min(4<<30-1<<20, unbounded/2)

func (r *reader) run(early []byte) error {
	s := r.pipe.socket
	r.traits = s.pattern.traits()
	most := s.maxMessage()
	r.decoder.SetLimits(zmtp.Limits{MaxMessage: most})
	defer r.end()
	src := source(r)
	if r.codec != nil {
		coded := &codedSource{reader: r, codec: r.codec, max: int(most)}
		defer coded.end()
		src = coded
	}
	if len(early) > 0 {
		for len(early) > 0 {
			n := copy(src.space(), early)
			early = early[n:]
			if err := src.received(n); err != nil {
				return err
			}
		}
		src.idle()
	}
	return r.receive(src)
}

func (r *reader) end() {
	r.batch.Release()
	r.returnSpans()
	r.release()
	if r.chunk != nil {
		r.chunk.Release()
		r.chunk = nil
	}
	if r.loan != nil {
		r.loan.forget()
	}
}

func (r *reader) returnSpans() {
	in := &r.pipe.socket.in
	in.mu.Lock()
	in.recycle(r.batch.spans)
	in.mu.Unlock()
	r.batch.spans = nil
}

// space returns the free end of the chunk.
func (r *reader) space() []byte { return r.room(1) }

// pending returns how many bytes wait for the rest of their message.
func (r *reader) pending() int { return r.fill - r.start }

// room returns the free end of the chunk, of at least so many bytes, which
// have arrived already if they are many. It exchanges the chunk first if what
// is being received does not fit in it.
func (r *reader) room(least int) []byte {
	if r.chunk == nil {
		size := max(buf.Large, len(r.tail)+max(least, minRead))
		if size > buf.Large {
			r.reserve(partFrames, size)
		}
		r.use(buf.Get(size), r.tail)
		if cap(r.tail) > keepTail {
			r.tail = nil
		}
		r.tail = r.tail[:0]
	}
	data := r.chunk.Data()
	pending := r.fill - r.start
	need := max(r.decoder.Need(), pending+least)
	if r.start+need > len(data) || len(data)-r.fill < minRead {
		size := buf.Large
		if r.usual > size/chunkShare {
			size = min(chunkShare*r.usual, maxChunk)
		}
		ordinary := size
		if need+minRead > size {
			// Twice what has arrived or as much as has arrived before, never
			// what was merely announced.
			size = max(min(need+readAhead, max(size, 2*pending, r.usual+readAhead)), pending+least)
		}
		switch {
		case size <= len(data) && r.fill+least <= len(data) && r.start == 0:
			// A large message that still fits here for a while.
		case size <= len(data) && r.chunk.Unique():
			r.use(r.chunk, data[r.start:r.fill])
		default:
			if size > ordinary {
				r.reserve(partFrames, size)
			}
			old := r.chunk
			r.use(buf.Get(size), data[r.start:r.fill])
			old.Release()
		}
		data = r.chunk.Data()
	}
	return data[r.fill:min(len(data), max(r.start+need+readAhead, r.fill+buf.Large))]
}

// use goes on in a chunk, at the start of which it puts what is pending.
func (r *reader) use(chunk *buf.Chunk, pending []byte) {
	r.chunk = chunk
	r.start, r.fill = 0, copy(chunk.Data(), pending)
	r.unpaid = len(chunk.Data())
}

// received decodes what can be decoded and hands it on.
func (r *reader) received(n int) error {
	r.fill += n
	if r.borrowed && r.loan.lent.spun {
		r.unwaited, r.loan.lent.spun = 0, false // to look again is to have waited
	}
	r.unwaited += n
	if !r.waiting.IsZero() {
		r.quick = time.Since(r.waiting) < r.pipe.socket.in.term
		r.waiting = time.Time{}
	}
	r.ttl = 0
	if err := r.conn.heard(); err != nil {
		return err
	}
	defer r.conn.listening()
	if r.batch.spans == nil {
		r.batch.spans = r.pipe.socket.in.spans()
	}
	r.batch.spans, r.bytes = r.batch.spans[:0], 0
	r.delivered = false
	err := r.decode()
	if r.holding != nil {
		r.settle(n)
	}
	// The messages before a fault are whole and good.
	if refused := r.hand(); err == nil {
		err = refused
	}
	if err == nil && r.conn.ending() {
		err = net.ErrClosed
	}
	switch {
	case err != nil:
	case r.due():
		err = errLent
	case r.borrowed && r.loan.stops():
		err = errNothing
	}
	return err
}

// settle records that n bytes of a large message have arrived. If the message is
// complete, it no longer counts here: its chunk then counts in the receive queue.
func (r *reader) settle(n int) {
	if r.pending() <= buf.Large {
		r.reserve(partFrames, 0)
		return
	}
	r.keptUp(n)
}

// decode collects the spans of whole messages, and obeys commands.
func (r *reader) decode() error {
	data, spans := r.chunk.Data(), r.batch.spans
	start, fill := r.start, r.fill
	for start < fill {
		kind, size, err := r.decoder.Next(data[start:fill])
		if kind == zmtp.KindMessage {
			spans = append(spans, Span{Start: uint32(start), End: uint32(start + size)})
			r.bytes += size
			start += size
			continue
		}
		if kind == zmtp.KindCommand && r.traits.subscribed {
			if at := subscriptionMessage(data[start : start+size]); at > 0 {
				spans = append(spans, Span{Start: uint32(start + at), End: uint32(start + size)})
				r.bytes += size
				start += size
				continue
			}
		}
		r.batch.spans = spans
		r.start = start
		if err != nil || kind == zmtp.NeedMore {
			return err
		}
		if err := r.command(zmtp.CommandBody(data[start : start+size])); err != nil {
			return err
		}
		spans = r.batch.spans
		if start += size; start < fill {
			r.ttl = 0 // whatever follows is a sign of life
		}
	}
	r.batch.spans = spans
	r.start = start
	return nil
}

// hand gives the messages collected to the socket.
func (r *reader) hand() error {
	b := &r.batch
	if len(b.spans) == 0 {
		return nil
	}
	r.peer.messagesIn.Add(uint64(len(b.spans)))
	r.peer.bytesIn.Add(uint64(r.bytes))
	r.usual = min(r.bytes/len(b.spans), maxUsual)
	r.bytes = 0
	if r.newcomer != nil && r.newcomer.admitted() {
		r.newcomer = nil
	}
	if r.ignore || r.newcomer != nil { // or the connection has ended
		r.peer.discarded.Add(uint64(len(b.spans)))
		b.spans = b.spans[:0]
		return nil
	}
	b.chunk = r.chunk
	b.chunk.Retain()
	b.peer = r.peer
	wanted, err := r.pipe.socket.pattern.messages(r.pipe, r.peer, b)
	if wanted {
		r.deliver(b)
	}
	b.Release()
	return err
}

// deliver queues a batch for the application's receive calls. The queue counts
// the memory that the batch keeps: the whole chunk for the first batch that
// stays in it.
func (r *reader) deliver(b *Batch) {
	s := r.pipe.socket
	if s.opts.Prepare != nil {
		s.opts.Prepare(b)
	}
	if len(b.spans) == 0 {
		return
	}
	switch bytes := b.bytes(); {
	case b.chunk != r.chunk: // Prepare has rewritten it
		b.cost = len(b.chunk.Data())
	case bytes <= len(b.chunk.Data())/stayPart:
		b.compact(bytes)
		b.cost = len(b.chunk.Data())
	default:
		b.cost, r.unpaid = r.unpaid, 0
	}
	b.cost += spanCost * len(b.spans)
	r.delivered = true
	if r.borrowed {
		// It is who would have to make room that reads, and there was none
		// queued before it began: what one read brings is all that there is
		// beyond the high-water mark.
		s.in.put(&r.pipe.in, b)
		return
	}
	if !s.in.push(&r.pipe.in, b, r.conn.gone) {
		// The connection is gone, which the reader will see; or Close or
		// Disconnect was called: then queued messages are still written, and
		// messages that arrive are dropped.
		r.peer.discarded.Add(uint64(len(b.spans)))
	}
}

// command answers what every socket answers, and passes on the rest.
func (r *reader) command(body []byte) error {
	if r.traits.ordered {
		if err := r.hand(); err != nil {
			return err
		}
	}
	c, err := zmtp.ParseCommand(body)
	if err != nil {
		return err
	}
	switch string(c.Name) {
	case "PING":
		ttl, context, err := zmtp.ParsePing(c.Data)
		if err != nil {
			return err
		}
		r.pipe.out.pong(context)
		r.ttl = time.Duration(ttl) * pingUnit
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
	name := zmtp.CommandPong // it comes at every beat, and costs no string
	if string(c.Name) != name {
		name = string(c.Name)
	}
	return r.pipe.socket.pattern.command(r.pipe, r.peer, name, c.Data)
}

// idle lets go of the chunk while there is nothing to read. What is left of it
// is the beginning of one message, which is kept aside if it is small, or moved
// to a chunk of its size: a peer that stops in the middle of a message shall
// not hold many times what it has sent.
func (r *reader) idle() {
	r.unwaited = 0
	if r.lends {
		r.waiting = time.Now()
	}
	if cap(r.batch.spans) > keepSpans {
		r.returnSpans()
	}
	if r.ttl > 0 {
		r.conn.expect(r.ttl)
		r.ttl = 0
	}
	if r.borrowed {
		r.loan.follow()
	}
	if r.chunk == nil {
		return
	}
	pending := r.chunk.Data()[r.start:r.fill]
	switch {
	case len(pending) <= keepTail:
		r.tail = append(r.tail[:0], pending...)
		r.chunk.Release()
		r.chunk = nil
	case len(r.chunk.Data()) > idlePart*len(pending):
		old := r.chunk
		r.use(buf.Get(len(pending)), pending)
		old.Release()
		if size := len(r.chunk.Data()); r.holding != nil && size < r.holding.parts[partFrames] {
			r.reserve(partFrames, size)
		}
	}
}
