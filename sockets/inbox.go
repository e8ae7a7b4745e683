package sockets

import (
	"context"
	"sync"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/invariants"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// inbox is a socket's receiving side: a queue a peer, and a ring of the peers
// that have something queued, served in turn (fair queueing).
//
// Readers push whole batches. Recv takes one message of the peer at the front
// and sends that peer to the back; RecvBatch takes that peer's first batch.
type inbox struct {
	mu      sync.Mutex
	ready   queue.Ring[*inqueue]
	some    queue.Gate    // receivers wait here while ready is empty
	done    chan struct{} // closed by Close
	watch   watch         // who waits for several sockets at once, also to send
	spare   [][]Span      // emptied span slices, for the readers
	room    int           // of spare, in spans
	loan    *loan         // of a connection that receive calls may read themselves
	sources int           // connected peers
	limits  hwm

	leftovers int           // bytes in queues of peers that have gone
	newcomers chan struct{} // closed when there is room for new peers; nil while none waits

	patience time.Duration // Options.RecvTimeout
	grace    time.Duration // aheadGrace, but in tests
	term     time.Duration // loanTerm, but in tests
	slack    int           // behindBytes, but in tests
	conflate bool          // keep the last message of each peer only
	named    bool          // Recv puts the peer's identity before its messages (ROUTER)
	readable chan struct{} // see Readable; nil before its first use
}

// hwm is a high-water mark in messages and bytes.
type hwm struct{ messages, bytes int }

// low is the mark below which a queue that was full takes again.
func (h hwm) low() hwm { return hwm{(h.messages + 1) / 2, (h.bytes + 1) / 2} }

// inqueue is what was received on one pipe and nobody took. All of it is
// guarded by inbox.mu.
type inqueue struct {
	batches  queue.Ring[inbatch]
	messages int
	cost     int           // of the batches, in bytes
	resume   chan struct{} // the reader waits here while the queue is full
	blocked  bool          // it does
	awaited  bool          // somebody was waiting for the batch that came last
	until    hwm           // to below what, while blocked
	grace    *time.Timer   // for the application while the reader is ahead; nil before its first use
	left     bool          // it was given in vain
	known    bool          // something was queued before
	gone     bool          // nothing more will be
	cut      bool          // what arrives is dropped: Disconnect was called
	listed   bool          // in inbox.ready
	link     *half         // where to fetch more when batches is empty (inproc)
	report   int           // how many messages the link wants to be told of at once
	untold   hwm           // taken, and not yet told to the link
}

func (q *inqueue) init() { q.resume = make(chan struct{}, 1) }

// unblock lets the reader go on.
func (q *inqueue) unblock() {
	q.blocked = false
	select {
	case q.resume <- struct{}{}:
	default:
	}
}

// inbatch is a queued batch, of which next messages were taken singly. Its
// cost is that of the others.
type inbatch struct {
	Batch
	next int
}

// spareSpans bounds the span slices that are kept for reuse: in all, they have
// room for so many spans.
const spareSpans = 128 << 10

func (in *inbox) init(limits hwm) {
	in.some = queue.NewGate()
	in.done = make(chan struct{})
	in.limits = limits
	in.grace, in.term, in.slack = aheadGrace, loanTerm, behindBytes
}

// spans returns an empty span slice for a reader to fill.
func (in *inbox) spans() []Span {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.reuse()
}

func (in *inbox) reuse() []Span {
	n := len(in.spare)
	if n == 0 {
		return nil
	}
	s := in.spare[n-1]
	in.spare[n-1] = nil
	in.spare = in.spare[:n-1]
	in.room -= cap(s)
	return s
}

func (in *inbox) recycle(s []Span) {
	if cap(s) > 0 && in.room+cap(s) <= spareSpans {
		in.spare = append(in.spare, s[:0])
		in.room += cap(s)
	}
}

// push queues b for the receivers, taking over its chunk reference and spans,
// and leaves b empty. While the queue is at its high-water mark it waits: the
// connection is not read meanwhile, which is the back-pressure on the peer. It
// returns false if the socket or the connection ended first, or the queue was cut.
func (in *inbox) push(q *inqueue, b *Batch, gone <-chan struct{}) bool {
	in.mu.Lock()
	if !q.known && !in.admit(q, gone) {
		return false
	}
	if in.conflate {
		in.keepLast(q, b)
	}
	for len(b.spans) > 0 {
		if q.cut {
			in.mu.Unlock()
			return false
		}
		room := in.limits.messages - q.messages
		full := room <= 0 || (q.cost >= in.limits.bytes && q.messages > 0)
		if full || q.ahead() {
			if !in.wait(q, full, gone) {
				return false
			}
			continue
		}
		item := inbatch{Batch: *b}
		if len(b.spans) <= room {
			b.chunk, b.spans, b.cost = nil, nil, 0
		} else {
			item.spans = append(in.reuse(), b.spans[:room]...)
			item.cost = b.cost / len(b.spans) * room
			b.cost -= item.cost
			b.spans = b.spans[:copy(b.spans, b.spans[room:])]
			b.chunk.Retain()
		}
		q.batches.Push(item)
		q.messages += len(item.spans)
		q.cost += item.cost
		q.awaited = in.some.Waiters() > 0
		in.list(q)
	}
	in.mu.Unlock()
	return true
}

// list enters q in the ring, where it may be already, and tells the receivers.
// mu must be held.
func (in *inbox) list(q *inqueue) {
	if !q.listed {
		q.listed = true
		in.ready.Push(q)
	}
	in.some.Wake()
	in.signal()
	in.watch.tell()
}

// unlist takes the queue at the front out of the ring. mu must be held.
func (in *inbox) unlist() *inqueue {
	q := in.ready.Pop()
	q.listed = false
	return q
}

// withdraw removes a queue from the ring, because its link is not to be fetched from
// any more. If it still holds batches that were fetched, it stays.
func (in *inbox) withdraw(q *inqueue) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if q.batches.Len() == 0 {
		in.delist(q)
	}
}

// delist removes a queue from the ring, if it is there. mu must be held.
func (in *inbox) delist(q *inqueue) {
	if !q.listed {
		return
	}
	for range in.ready.Len() {
		if other := in.ready.Pop(); other != q {
			in.ready.Push(other)
		}
	}
	q.listed = false
	in.signal()
}

// front returns the queue at the front of the ring, which has a message, or nil
// if there is none. mu must be held, and may be released meanwhile.
func (in *inbox) front() *inqueue {
	for in.ready.Len() > 0 {
		if q := in.ready.Front(); q.batches.Len() > 0 {
			return q
		}
		in.fetch()
	}
	return nil
}

// next waits until some peer has a message and returns its queue, still at the
// front of the ring, with in.mu held.
func (in *inbox) next(ctx context.Context, l *queue.Limit) (*inqueue, error) {
	in.mu.Lock()
	for {
		if in.closed() {
			in.mu.Unlock()
			return nil, ErrClosed
		}
		if q := in.front(); q != nil {
			return q, nil
		}
		if in.loan != nil && in.borrow(ctx) {
			continue
		}
		if err := in.some.Wait(ctx, &in.mu, in.done, l); err != nil {
			in.mu.Unlock()
			return nil, err
		}
	}
}

// taken settles the counts after messages left q, moves q to the back of the
// ring or out of it, lets its reader go on, and unlocks.
func (in *inbox) taken(q *inqueue, messages, cost int) {
	q.messages -= messages
	q.cost -= cost
	in.fetched(q, cost)
	in.unlist()
	if q.batches.Len() > 0 {
		q.listed = true
		in.ready.Push(q)
	} else {
		invariants.Assert(q.messages == 0 && q.cost == 0, "an empty queue has nothing to count")
	}
	if q.left && q.cost < aheadBytes/2 {
		q.left = false
	}
	if q.blocked && (q.messages < q.until.messages && q.cost < q.until.bytes || q.messages == 0) {
		q.unblock()
	}
	if in.ready.Len() > 0 {
		in.some.Wake()
	}
	in.signal()
	link, told, empty := q.account(messages, cost)
	in.mu.Unlock()
	if link != nil {
		link.consumed(told, empty)
	}
}

// fetch has the link of the queue at the front fill it, if there is something
// to fill it with. It is called with mu held and returns so, but lets go of it
// meanwhile: the queue is not listed then, so nobody else does the same.
func (in *inbox) fetch() {
	q := in.unlist()
	link := q.link
	in.signal()
	in.mu.Unlock()
	if link != nil {
		link.fetch()
	}
	in.mu.Lock()
}

// account notes what was taken from the queue of a link, and returns the link
// if it is to be told. mu must be held.
func (q *inqueue) account(messages, cost int) (link *half, told hwm, empty bool) {
	if q.link == nil {
		return nil, hwm{}, false
	}
	q.untold.messages += messages
	q.untold.bytes += cost
	empty = q.batches.Len() == 0
	if !empty && q.untold.messages < q.report {
		return nil, hwm{}, false
	}
	told, q.untold = q.untold, hwm{}
	return q.link, told, empty
}

// await waits until there is a message, and takes none. It may return when there
// is none.
func (in *inbox) await(ctx context.Context, l *queue.Limit) error {
	if _, err := in.next(ctx, l); err != nil {
		return err
	}
	in.some.Wake() // the token, if it was one, is for whoever takes the message
	in.mu.Unlock()
	return nil
}

// single is one message that was taken out of the inbox, with a reference on
// its bytes.
type single struct {
	chunk *buf.Chunk
	span  Span
	peer  *Peer
}

func (m *single) wire() zmtp.Message {
	return zmtp.Message(m.chunk.Data()[m.span.Start:m.span.End:m.span.End])
}

// lend makes b the batch of the message, without its first skip bytes. The
// reference is then b's.
func (m *single) lend(b *Batch, skip int) {
	b.Release()
	m.span.Start += uint32(skip)
	b.chunk, b.spans, b.peer = m.chunk, append(b.spans, m.span), m.peer
}

// discard drops the message as one that was not expected.
func (m *single) discard() {
	m.peer.discarded.Add(1)
	m.chunk.Release()
}

// take takes one message, and waits for it.
func (in *inbox) take(ctx context.Context, l *queue.Limit) (single, error) {
	q, err := in.next(ctx, l)
	if err != nil {
		return single{}, err
	}
	return in.takeOf(q), nil
}

// takeQueued takes one message that is queued already, or returns ErrWouldBlock.
func (in *inbox) takeQueued() (single, error) {
	in.mu.Lock()
	if in.closed() {
		in.mu.Unlock()
		return single{}, ErrClosed
	}
	q := in.front()
	if q == nil {
		in.mu.Unlock()
		return single{}, ErrWouldBlock
	}
	return in.takeOf(q), nil
}

// takeOf takes the first message of the queue at the front. mu must be held, and
// is released.
func (in *inbox) takeOf(q *inqueue) single {
	item := q.batches.At(0)
	m := single{item.chunk, item.spans[item.next], item.peer}
	cost := item.cost / (len(item.spans) - item.next)
	item.cost -= cost
	item.next++
	if item.next == len(item.spans) {
		in.recycle(item.spans)
		q.batches.Pop() // its reference on chunk is now ours
	} else {
		m.chunk.Retain()
	}
	in.taken(q, 1, cost)
	return m
}

// recv takes one message and copies it.
func (in *inbox) recv(ctx context.Context) (Message, error) {
	m, _, err := in.recvFrom(ctx)
	return m, err
}

// recvFrom is recv and tells whose message it is.
func (in *inbox) recvFrom(ctx context.Context) (Message, *Peer, error) {
	l := queue.Limit{Patience: in.patience}
	m, err := in.take(ctx, &l)
	if err != nil {
		return nil, nil, err
	}
	var lead []byte
	if in.named {
		lead = m.peer.identity
	}
	owned := own(m.wire(), lead)
	m.chunk.Release()
	return owned, m.peer, nil
}

// exchanger is a REQ or REP: whether it may receive now, and what, is its own to
// say.
type exchanger interface {
	// next takes the next message for the application out of the inbox, without
	// waiting (ErrWouldBlock). Its first skip bytes are not the application's.
	next() (m single, skip int, err error)
}

// takeNext takes the next message of x, and waits for it. It waits outside of
// x.next, whose mutex others need meanwhile.
func (in *inbox) takeNext(ctx context.Context, x exchanger) (m single, skip int, err error) {
	l := queue.Limit{Patience: in.patience}
	for {
		m, skip, err = x.next()
		if err != ErrWouldBlock {
			return m, skip, err
		}
		if err = in.await(ctx, &l); err != nil {
			return m, 0, err
		}
	}
}

// recvNext is recvFrom for an exchanger.
func (in *inbox) recvNext(ctx context.Context, x exchanger) (Message, *Peer, error) {
	m, skip, err := in.takeNext(ctx, x)
	if err != nil {
		return nil, nil, err
	}
	owned, peer := m.own(skip)
	return owned, peer, nil
}

// lendNext is recvBatch for an exchanger: b gets one message.
func (in *inbox) lendNext(ctx context.Context, x exchanger, b *Batch) error {
	m, skip, err := in.takeNext(ctx, x)
	if err != nil {
		return err
	}
	m.lend(b, skip)
	return nil
}

// recvBatch exchanges the contents of b for the next queued batch.
func (in *inbox) recvBatch(ctx context.Context, b *Batch) error {
	spans := b.spans
	b.spans = nil
	b.Release()
	l := queue.Limit{Patience: in.patience}
	q, err := in.next(ctx, &l)
	if err != nil {
		b.spans = spans[:0]
		return err
	}
	in.recycle(spans)
	item := q.batches.Pop()
	*b = item.Batch
	if item.next > 0 {
		b.spans = b.spans[:copy(b.spans, b.spans[item.next:])]
	}
	in.taken(q, len(b.spans), b.cost)
	return nil
}

// close ends all waiting, now and later.
func (in *inbox) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	close(in.done)
	in.recall()
	if in.readable != nil {
		close(in.readable)
	}
	in.watch.tell()
}

// discard drops everything that is queued. It releases the chunks with the mutex
// unlocked: the Release method of an Owner is the application's code.
func (in *inbox) discard() {
	var chunks []*buf.Chunk
	defer func() {
		for _, c := range chunks {
			c.Release()
		}
	}()
	in.mu.Lock()
	defer in.mu.Unlock()
	// Once to drop what was fetched, once to fetch what was not, and once to
	// drop that. What still comes has come later.
	for n := 3 * in.ready.Len(); n > 0 && in.ready.Len() > 0; n-- {
		q := in.ready.Front()
		if q.batches.Len() == 0 {
			in.fetch()
			continue
		}
		in.unlist()
		for q.batches.Len() > 0 {
			item := q.batches.Pop()
			if item.peer != nil { // as in tests of the inbox alone
				item.peer.discarded.Add(uint64(len(item.spans) - item.next))
			}
			chunks = append(chunks, item.chunk)
			in.recycle(item.spans)
		}
		link, told, empty := q.account(q.messages, q.cost)
		cost := q.cost
		q.messages, q.cost = 0, 0
		in.fetched(q, cost)
		if q.blocked {
			q.unblock()
		}
		if link != nil {
			in.mu.Unlock()
			link.consumed(told, empty)
			in.mu.Lock()
		}
	}
	in.signal()
}
