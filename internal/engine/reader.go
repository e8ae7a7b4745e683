package engine

import (
	"net"
	"time"

	"clustermap/internal/bounds"
	"clustermap/internal/buf"
	"clustermap/internal/link"
	"clustermap/zmtp"
)

// reader turns the bytes of one connection into batches. It belongs to the
// connection's reading goroutine.
//
// It reads into a chunk, finds complete messages as spans, and passes them on
// as one batch per read. A partial message at the end stays in the chunk, and
// the next read continues after it. If the chunk has no room left for the
// message, it is moved to a new chunk. Chunks are larger for larger messages,
// so that several messages of the recent size fit. A message larger than that
// gets a buffer that doubles as its bytes arrive, independently of the announced size. When an
// eighth of it has arrived it may get one that it fits in; see ahead.
//
// If the application receives its large messages one by one, each of them is read into a
// chunk of its own, which becomes the application's; see givesAway.
type reader struct {
	pipe *Pipe
	peer *Peer
	conn *conn

	codec  zmtp.Codec // decodes the received bytes; nil for plain frames
	ignore bool       // discard the peer's messages
	traits *Pattern   // of the socket type

	holding *bounds.Holding // in socket.incomplete; nil before the first large message

	newcomer *Newcomer // the peer, while its messages wait until it is admitted; otherwise nil

	decoder   zmtp.Decoder
	most      int   // bytes of the largest message
	window          // of bytes that are not decoded yet
	delivered bool  // the current read has brought a message for the application
	awaited   bool  // and that was waiting for it
	batch     Batch // messages decoded and not passed on yet
	bytes     int   // their size
	usual     int   // recent size of a message

	ttl time.Duration // from the PING that came last, unless bytes came since

	lender
}

// lender is the part of a reader that lends the connection to receive calls.
type lender struct {
	lends    bool      // see reader.receive
	unwaited int       // bytes read since it waited for some
	waiting  time.Time // since when it waits for some; zero: it does not
	quick    bool      // the last wait was a short one
	borrowed bool      // a receive call reads
	flow     int       // messages that came since the last wait, half of those before it, and so on
	loan     *loan
}

func (r *reader) run(early []byte) error {
	s := r.pipe.socket
	r.traits = s.pattern
	most := s.maxMessage(r.conn.config)
	r.most = int(most)
	r.decoder.SetLimits(zmtp.Limits{MaxMessage: most})
	defer r.end()
	src := link.Source(r)
	if r.traits.Raw {
		src = &rawSource{reader: r, most: int(min(most, StreamRead))}
		r.decoder.SetLimits(zmtp.Limits{MaxMessage: MaxMessage})
	}
	if r.codec != nil {
		coded := &codedSource{reader: r, codec: r.codec, max: int(most)}
		defer coded.release()
		src = coded
	}
	if len(early) > 0 {
		for len(early) > 0 {
			n := copy(src.Space(), early)
			early = early[n:]
			if err := src.Received(n); err != nil {
				return err
			}
		}
		src.Idle()
	}
	return r.receive(src)
}

func (r *reader) end() {
	r.batch.Release()
	r.returnSpans()
	if r.holding != nil {
		r.pipe.socket.incomplete.Release(r.holding)
	}
	r.release()
	if r.loan != nil {
		r.loan.forget()
	}
}

func (r *reader) returnSpans() {
	r.pipe.socket.In.Recycle(r.batch.q.Spans)
	r.batch.q.Spans = nil
}

// Space returns the free end of the chunk.
func (r *reader) Space() []byte { return r.room(1) }

// room returns the free end of the chunk, which has at least the given number of
// bytes; a large number of bytes must already have arrived. It replaces the chunk
// first if the partial message does not fit in it.
func (r *reader) room(least int) []byte {
	if r.chunk == nil {
		ordinary := r.ordinary()
		size := max(ordinary, len(r.tail)+max(least, minRead))
		if size > ordinary {
			r.reserve(bounds.PartFrames, size)
		}
		r.resume(size)
	}
	data, pending := r.chunk.Data(), r.pending()
	need, last := max(r.decoder.Need(), pending+least), r.decoder.Last()
	if r.exact && r.start+need <= len(data) { // commands may stand before the message
		if !last {
			need = max(need, pending+minRead) // of small frames not one for each read
		}
		return data[r.fill:min(len(data), r.start+need)]
	}
	// A message with more frames may need another chunk: what it has is copied only if it doubles.
	if pending > keepTail && (last || need >= 2*pending) && r.givesAway(need) && r.ahead(need) {
		r.moveTo(buf.Exact(need))
		r.exact = true
		return r.chunk.Data()[r.fill:need]
	}
	if r.start+need > len(data) || len(data)-r.fill < minRead {
		size := r.ordinary()
		if r.usual > size/chunkShare && size == buf.Large {
			size = min(chunkShare*r.usual, maxChunk)
		}
		ordinary := size
		if need+minRead > size {
			// What is needed or usual, but never the size that was only announced.
			whole, grown := need+readAhead, r.doubled(least)
			if !last {
				whole = max(whole, grown) // there is another frame at least
			}
			if grown = max(size, grown, r.usual+readAhead); grown < whole && !r.ahead(whole) {
				whole = grown
			}
			size = max(whole, pending+least)
		}
		switch {
		case size <= len(data) && r.fill+least <= len(data) && r.start == 0:
			// A large message that still has room here.
		case size <= len(data) && r.chunk.Unique():
			r.use(r.chunk, r.unused())
		default:
			if size > ordinary {
				r.reserve(bounds.PartFrames, size)
			}
			r.move(size)
		}
		data = r.chunk.Data()
	}
	most := max(need+readAhead, pending+buf.Large)
	if r.givesAway(max(need, r.usual)) {
		// No more than a message needs for a chunk of its own, which is copied there. It has none
		// yet if it has that much: not until a frame has come with which it is large.
		if own := max(max(need, r.usual)/idlePart, keepTail) + 1; own >= pending+least {
			most = own
		}
	}
	return data[r.fill:min(len(data), r.start+most)]
}

// ahead reports whether a chunk of the given size may replace that of the pending bytes, for the
// rest of a message of which an eighth has arrived, and counts it then. It is more than twice the pending
// bytes only if the message before was as large, or if there is plenty of memory: a chunk that
// fits saves copies at each step, but a peer may stop in the middle of its message.
func (r *reader) ahead(size int) bool {
	switch pending := r.pending(); {
	case size > idlePart*pending+readAhead:
		return false
	case size <= r.ordinary():
		return true
	case size > max(2*pending, r.usual)+readAhead:
		r.held()
		return r.pipe.socket.incomplete.Ahead(r.holding, bounds.PartFrames, buf.Size(size))
	}
	r.reserve(bounds.PartFrames, size)
	return true
}

// givesAway says that a message of the given size, of which enough has arrived, is read into
// a chunk of its own, which the application gets: because it has taken the last such message
// by itself.
func (r *reader) givesAway(size int) bool {
	return size >= giveFrom && r.codec == nil && !r.traits.Raw && r.pipe.socket.gives.Load()
}

// Received decodes the complete messages and passes them on.
func (r *reader) Received(n int) error {
	r.fill += n
	if r.borrowed && r.loan.lent.Spun {
		r.unwaited, r.loan.lent.Spun = 0, false // polling counts as waiting
		r.flow /= 2
	}
	r.unwaited += n
	if !r.waiting.IsZero() {
		r.quick = time.Since(r.waiting) < r.pipe.socket.Tuning.LoanTerm
		r.waiting = time.Time{}
	}
	r.ttl = 0
	if err := r.conn.Heard(); err != nil {
		return err
	}
	defer r.conn.Listening()
	if r.batch.q.Spans == nil {
		r.batch.q.Spans = r.pipe.socket.In.Spare()
	}
	r.batch.q.Spans, r.bytes = r.batch.q.Spans[:0], 0
	r.delivered, r.awaited = false, false
	err := r.decode()
	whole := len(r.batch.q.Spans) > 0
	r.flow += len(r.batch.q.Spans)
	if r.borrowed {
		r.loan.lent.Streaming(r.flow >= streamFlow)
	}
	// The messages before a fault are complete and valid.
	if refused := r.hand(); err == nil {
		err = refused
	}
	if r.holding != nil {
		r.settle(n, whole || r.delivered)
	}
	if err == nil && r.conn.Ending() {
		err = net.ErrClosed
	}
	switch {
	case err != nil:
	case r.due():
		err = errLent
	case r.borrowed && r.loan.stops():
		err = link.ErrNothing
	}
	return err
}

// settle records that n bytes of an incomplete message have arrived. If the message
// is complete and was queued, it no longer counts here, because its chunk then counts in
// the receive queue. While it waits for that, it counts here.
func (r *reader) settle(n int, whole bool) {
	switch pending := r.pending(); {
	case pending <= keepTail, whole && pending <= buf.Large:
		r.reserve(bounds.PartFrames, 0)
	case r.holding.Bytes() > 0:
		r.pipe.socket.incomplete.KeptUp(r.holding, n, whole, r.delivered)
	}
}

// decode collects the spans of complete messages, and handles commands.
func (r *reader) decode() error {
	data, spans := r.chunk.Data(), r.batch.q.Spans
	start, fill := r.start, r.fill
	scan, fresh := r.traits.scan, false
	for start < fill {
		if scan != nil {
			if size, tag := scan(data[start:min(fill, start+r.most)]); size > 0 {
				if !fresh {
					r.decoder.Reset() // it may know a part of this message
					fresh = true
				}
				spans = append(spans, buf.Span{Start: uint32(start), End: uint32(start + size), Tag: tag})
				r.bytes += size
				start += size
				continue
			}
		}
		kind, size, err := r.decoder.Next(data[start:fill])
		if kind == zmtp.KindMessage {
			spans = append(spans, buf.Span{Start: uint32(start), End: uint32(start + size)})
			r.bytes += size
			start += size
			continue
		}
		if kind == zmtp.KindCommand && r.traits.Subscribed {
			if at := subscriptionMessage(data[start : start+size]); at > 0 {
				spans = append(spans, buf.Span{Start: uint32(start + at), End: uint32(start + size)})
				r.bytes += size
				start += size
				fresh = false // it may be inside a message
				continue
			}
		}
		r.batch.q.Spans = spans
		r.start = start
		if err != nil || kind == zmtp.KindNeedMore {
			return err
		}
		if err := r.command(zmtp.CommandBody(data[start : start+size])); err != nil {
			return err
		}
		spans, fresh = r.batch.q.Spans, false
		if start += size; start < fill {
			r.ttl = 0 // any further bytes show that the peer is alive
		}
	}
	r.batch.q.Spans = spans
	r.start = start
	return nil
}

// hand passes the collected messages to the socket.
func (r *reader) hand() error {
	b := &r.batch
	if len(b.q.Spans) == 0 {
		return nil
	}
	r.peer.conduit.MessagesIn.Add(uint64(len(b.q.Spans)))
	r.peer.conduit.BytesIn.Add(uint64(r.bytes))
	r.usual = min(r.bytes/len(b.q.Spans), maxUsual)
	r.bytes = 0
	if r.newcomer != nil && r.newcomer.admitted() {
		r.newcomer = nil
	}
	if r.ignore || r.newcomer != nil { // or the connection has ended
		r.peer.conduit.Discard(len(b.q.Spans))
		b.q.Spans = b.q.Spans[:0]
		return nil
	}
	b.q.Chunk = r.chunk
	if r.exact && r.pending() == 0 {
		r.chunk, r.start, r.fill = nil, 0, 0 // the batch has our reference
	} else {
		b.q.Chunk.Retain()
	}
	b.q.From = &r.peer.conduit
	wanted, err := r.pipe.socket.pattern.Messages(r.pipe, r.peer, b)
	if wanted {
		r.deliver(b)
	}
	b.Release()
	return err
}

// deliver queues a batch for the application's receive calls. The queue counts
// the memory that the batch occupies: the whole chunk for the first batch that
// stays in it.
func (r *reader) deliver(b *Batch) {
	s := r.pipe.socket
	if pace := s.pattern.pace; pace != nil {
		if pause := pace(b); pause > 0 && !r.borrowed {
			defer r.pause(pause)
		}
	}
	if prepare := r.pipe.socket.pattern.prepare; prepare != nil {
		prepare(b)
	}
	if len(b.q.Spans) == 0 {
		return
	}
	switch bytes := b.bytes(); {
	case b.q.Chunk != r.chunk: // Prepare has rewritten it
		b.q.Cost = len(b.q.Chunk.Data())
	case bytes <= len(b.q.Chunk.Data())/stayPart:
		b.compact(bytes)
		b.q.Cost = len(b.q.Chunk.Data())
	case !r.charged:
		b.q.Cost, r.charged = len(b.q.Chunk.Data()), true
	}
	b.q.Cost += spanCost * len(b.q.Spans)
	r.delivered = true
	gone := r.conn.Gone()
	if r.borrowed {
		// A receive call is reading, which would also have to make room, and
		// nothing was queued before it began. So the queue exceeds the
		// high-water mark by the messages of one read at most.
		gone = nil
	}
	r.awaited = s.In.Put(&r.pipe.In, &b.q, gone)
}

// pause waits, or until the connection ends.
func (r *reader) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.conn.Gone():
	}
}

// command answers the commands that every socket answers, and passes on the
// others.
func (r *reader) command(body []byte) error {
	if r.traits.Ordered {
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
		r.pipe.Out.Pong(context)
		r.ttl = time.Duration(ttl) * PingUnit
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
	name := zmtp.CommandPong // the usual command, for which no string is allocated
	if string(c.Name) != name {
		name = string(c.Name)
	}
	return r.pipe.socket.pattern.Command(r.pipe, r.peer, name, c.Data)
}

// Idle releases the chunk while there are no bytes to read. What it still holds counts from then
// on, whatever its size: the chunks that do not count are those of readers that run.
func (r *reader) Idle() {
	r.unwaited = 0
	r.flow /= 2
	if r.lends {
		r.waiting = time.Now()
	}
	if cap(r.batch.q.Spans) > keepSpans {
		r.returnSpans()
	}
	if r.ttl > 0 {
		r.conn.Expect(r.ttl)
		r.ttl = 0
	}
	if r.borrowed {
		r.loan.follow()
	}
	r.keep(bounds.PartFrames, &r.window)
}

// ordinary returns the size of a chunk that does not count while the reader runs.
func (r *reader) ordinary() int {
	if r.pipe.socket.incomplete.Scarce() {
		return scarceChunk
	}
	return buf.Large
}

// reserve changes a part of the reader's holding to that of a chunk of the given number of
// bytes; 0 stands for an ordinary chunk. If the part grows, reserve may wait until other
// connections release memory, except in a receive call that reads the connection
// itself. If the connection ends during the wait, the part does not change.
func (r *reader) reserve(part, bytes int) {
	if bytes > 0 {
		bytes = buf.Size(bytes)
	}
	r.hold(part, bytes, !r.borrowed)
}

// keep changes a part of the reader's holding to what stays of a window while the reader waits
// for the peer.
func (r *reader) keep(part int, w *window) {
	if w.chunk != nil {
		r.hold(part, w.rest(), false)
	}
}

func (r *reader) hold(part, bytes int, wait bool) {
	if r.holding == nil && bytes == 0 {
		return
	}
	r.held()
	if r.holding.Part(part) != bytes {
		r.pipe.socket.incomplete.Set(r.holding, part, bytes, wait)
	}
}

// held makes the holding.
func (r *reader) held() {
	if r.holding == nil {
		r.holding = bounds.NewHolding(r.conn, r.pipe.In.Client())
	}
}

// window is the chunk that bytes are read into, with those that were not used yet.
type window struct {
	chunk       *buf.Chunk
	start, fill int    // bytes of chunk that were not used yet
	tail        []byte // those bytes, while the connection is idle and has no chunk
	charged     bool   // a queued batch counts for the chunk
	exact       bool   // the chunk is for the message at its start alone
}

// pending returns the number of bytes that were not used, and unused the bytes.
func (w *window) pending() int { return w.fill - w.start }

func (w *window) unused() []byte { return w.chunk.Data()[w.start:w.fill] }

// use continues in a chunk, to the start of which it copies the pending bytes.
func (w *window) use(chunk *buf.Chunk, pending []byte) {
	w.chunk, w.charged, w.exact = chunk, false, false
	w.start, w.fill = 0, copy(chunk.Data(), pending)
}

// move continues in a new chunk of at least size bytes.
func (w *window) move(size int) { w.moveTo(buf.Get(size)) }

func (w *window) moveTo(chunk *buf.Chunk) {
	old := w.chunk
	w.use(chunk, w.unused())
	old.Release()
}

// resume is move after a rest.
func (w *window) resume(size int) {
	w.use(buf.Get(size), w.tail)
	if cap(w.tail) > keepTail {
		w.tail = nil
	}
	w.tail = w.tail[:0]
}

// rest prepares for a wait, and returns the size of the chunk that stays, if one does. The
// pending bytes are the beginning of one unit, which is kept aside if it is small, or moved to
// a chunk of its size: a peer that stops in the middle of a message must not hold many times
// the bytes that it has sent.
func (w *window) rest() int {
	switch pending := w.unused(); {
	case len(pending) <= keepTail:
		w.tail = append(w.tail[:0], pending...)
		w.release()
		return 0
	case len(w.chunk.Data()) > idlePart*len(pending):
		w.move(len(pending))
	}
	return len(w.chunk.Data())
}

// release releases the chunk.
func (w *window) release() {
	if w.chunk != nil {
		w.chunk.Release()
		w.chunk = nil
	}
}

// doubled returns how large a buffer may be for the pending bytes: twice them, or as large as
// it is while at least so many bytes fit behind them. So they are copied when they have
// doubled, and not for each read.
func (w *window) doubled(least int) int {
	size := len(w.chunk.Data())
	if w.start == 0 && size-w.fill >= max(least, minRead) {
		return size
	}
	return 2 * w.pending()
}
