package queue

import (
	"context"
	"sync"
	"time"

	"clustermap/internal/fifo"
	"clustermap/internal/invariants"
)

// Inbox is a socket's receiving side: a queue a peer, and a ring of the clients that
// have queues with messages, which are served in turn (fair queueing; see Client).
//
// Put is the one way in: connections put whole batches. Take and TakeBatch are
// the ways out: Take takes one message of the queue at the front and sends that
// queue to the back; TakeBatch takes its first batch. settle counts every message that
// leaves a queue, or for several calls of Take all of theirs at once; see run.
type Inbox struct {
	limits   HWM           // of each queue
	conflate bool          // keep the last message of each peer only
	grace    time.Duration // aheadGrace, except in tests

	lead func(*Conn) []byte // see Init

	mu    sync.Mutex    // locked by lock and Take only
	run   run           // of Take
	shelf shelf         // where Take copies to
	ready turns         // queues with messages
	some  Gate          // receivers wait here while ready is empty
	over  bool          // closed
	done  chan struct{} // closed by Close
	spare spans         // for the readers

	total     total
	clients   clients
	leftovers leftovers
	watch     watch

	loan    *Lending // a connection that receive calls may read themselves, or nil
	sources int      // connected peers
}

// Inqueue holds messages received from one peer and not yet by the application. Inbox.mu
// guards all of it.
type Inqueue struct {
	batches fifo.Queue[inbatch]
	size    HWM
	state   inState
	listed  bool // in Inbox.ready
	left    bool // Leave was called: its peer has gone for good
	client  *Client
	joined  bool // counted in client.queues

	held   bool // in total.held
	awaits int  // the cost of the batch for which it is there, or was let in

	room  Gate        // its readers wait here while it is full
	until HWM         // they wait until it is below
	grace *time.Timer // how long a reader that is ahead waits; nil before its first use
	slow  bool        // the application did not catch up during the last such wait

	link    Link // where to fetch more when the queue is empty; nil for most
	report  int  // number of messages for which the link gets a receipt
	pending HWM  // taken, and not yet in a receipt
}

// Link is where a queue is filled from on demand: a socket of this process. It is called
// with no lock held, once for all messages that it has or that were taken.
type Link interface {
	// Fetch fills the queue. Inbox ignores the result.
	Fetch() bool
	// Consumed gets the size of the messages that have left the queue, and whether the
	// queue is empty.
	Consumed(n HWM, empty bool)
}

// inState says how Put and settle treat a queue.
type inState uint8

const (
	inKnown inState = iota
	inFresh         // nothing was queued yet; see leftover.go
	inGone          // its peer has gone: the remaining messages count as leftovers
	inCut           // Cut was called: Put drops messages
)

// inbatch is a queued batch, of which next messages were taken singly. Its
// cost is that of the others.
type inbatch struct {
	Batch
	next int
}

// Init sets the high-water mark of each queue, and the total of their bytes. With conflate
// a queue keeps the last message only. Messages that Take copies begin with a frame from lead,
// if it is not nil; it is called with mu held.
func (in *Inbox) Init(limits HWM, total int, conflate bool, lead func(*Conn) []byte) {
	in.limits, in.total.most, in.conflate, in.grace, in.lead = limits, total, conflate, aheadGrace, lead
	in.done = make(chan struct{})
}

// Init says whether the peer is new: then its first messages may have to wait.
func (q *Inqueue) Init(fresh bool) {
	q.client = new(Client)
	if fresh {
		q.state = inFresh
	}
}

// SetLimits changes the high-water mark of each queue, and the total of their bytes.
func (in *Inbox) SetLimits(limits HWM, total int) {
	in.lock()
	defer in.mu.Unlock()
	in.limits, in.total.most = limits, total
	for i := range in.ready.lanes.Len() { // a queue whose readers wait has messages
		queues := &(*in.ready.lanes.At(i)).queues
		for j := range queues.Len() {
			(*queues.At(j)).room.WakeAll()
		}
	}
	in.total.release()
	in.leftovers.newcomers.WakeAll()
}

// Report changes the number of messages given to Connect.
func (in *Inbox) Report(q *Inqueue, report int) {
	in.lock()
	defer in.mu.Unlock()
	q.report = report
}

// Put queues b for the receivers. It takes over b's chunk reference and spans, and
// leaves b empty, without gone with other spans.
//
// While the queue or the inbox is full, Put waits for room: the connection is not read
// meanwhile, which is the back-pressure on the peer. The wait ends when the inbox
// is closed or gone is. If gone is nil, Put does not wait, and the queue may exceed
// its high-water mark.
//
// Messages that it does not queue it drops: because such a wait has ended or the
// queue was cut, or with conflate because a later one replaces them.
//
// It reports whether a receive call was waiting.
func (in *Inbox) Put(q *Inqueue, b *Batch, gone <-chan struct{}) (awaited bool) {
	in.lock()
	if in.conflate && len(b.Spans) > 0 {
		in.replace(q, b)
	}
	for len(b.Spans) > 0 && q.state != inCut && (gone == nil || in.await(q, gone) && in.total.admit(q, b.Cost, (*locker)(in), gone, in.done)) {
		item := inbatch{Batch: *b}
		if room := in.limits.Messages - q.size.Messages; gone == nil || len(b.Spans) <= room {
			*b = Batch{}
		} else {
			item.Spans = append(in.spare.get(), b.Spans[:room]...)
			item.Cost = b.Cost / len(b.Spans) * room
			b.Cost -= item.Cost
			b.Spans = b.Spans[:copy(b.Spans, b.Spans[room:])]
			b.Chunk.Retain()
		}
		q.batches.Push(item)
		q.size.Messages += len(item.Spans)
		q.size.Bytes += item.Cost
		in.total.used += item.Cost
		awaited = in.some.Waiters() > 0
		in.list(q)
	}
	if gone == nil && b.Spans == nil {
		b.Spans = in.spare.get()
	}
	in.mu.Unlock()
	b.drop()
	return awaited
}

// replace drops everything that is queued in q, and all messages of b but the last.
// mu must be held, and is released meanwhile.
func (in *Inbox) replace(q *Inqueue, b *Batch) {
	in.empty(q)
	last := len(b.Spans) - 1
	b.From.Discard(last)
	b.Spans[0] = b.Spans[last]
	b.Spans = b.Spans[:1]
}

// await waits until q takes more. It returns false if the inbox or gone was
// closed first, or the queue cut. Several readers may wait for the same queue. mu
// must be held, and is released meanwhile.
func (in *Inbox) await(q *Inqueue, gone <-chan struct{}) bool {
	var waited *Gate
	for q.state != inCut {
		gate, over := &q.room, (<-chan time.Time)(nil)
		switch {
		case q.state == inFresh && in.leftovers.bytes >= in.limits.Bytes:
			gate = &in.leftovers.newcomers
		case in.full(q):
			q.until = in.limits.Low()
		case q.ahead():
			over = in.pause(q)
		default:
			if q.state == inFresh {
				q.state = inKnown
			}
			if waited != nil {
				waited.Wake() // there is room for others, too
			}
			return true
		}
		err := gate.Sleep((*locker)(in), gone, in.done, over)
		if over != nil {
			q.grace.Stop()
		}
		switch err {
		case nil:
		case ErrTimeout:
			q.slow = true
		default:
			return false
		}
		waited = gate
	}
	if waited != nil {
		waited.Wake() // this reader has no use for the token
	}
	return false
}

// Settled waits until q takes more, as Put does. It returns false if the inbox or gone was
// closed first, or the queue cut.
func (in *Inbox) Settled(q *Inqueue, gone <-chan struct{}) bool {
	in.lock()
	defer in.mu.Unlock()
	return in.await(q, gone)
}

// full reports whether a queue has reached its high-water mark. mu must be held.
func (in *Inbox) full(q *Inqueue) bool {
	return q.size.Messages >= in.limits.Messages || q.size.Bytes >= in.limits.Bytes && q.size.Messages > 0
}

// InboxStatus is the state of an inbox.
type InboxStatus struct {
	Ready        int        // peers with messages, or that may have some to fetch
	Bytes        int        // in all queues
	Held         int        // readers that wait because of the total
	Clients      int        // that have joined
	Leftovers    int        // bytes of peers that have gone
	Newcomers    int        // readers of new peers that wait for these to be taken
	Watched      bool       // there is a token
	Loan         Borrowable // the connection lent to the receive calls, or nil
	Read, Lapsed bool       // one of them reads it, and has done so for a term
}

// Status returns the state.
func (in *Inbox) Status() InboxStatus {
	in.lock()
	defer in.mu.Unlock()
	s := InboxStatus{
		Ready: in.ready.count, Bytes: in.total.used, Held: in.total.held.count, Clients: len(in.clients),
		Leftovers: in.leftovers.bytes, Newcomers: in.leftovers.newcomers.Waiters(), Watched: in.watch.on.Load(),
	}
	if l := in.loan; l != nil {
		s.Loan, s.Read, s.Lapsed = l.from, l.taken, l.lapsed
	}
	return s
}

// Look returns the size of the queued messages, whether the queue has reached its
// high-water mark, and how many readers wait for room.
func (in *Inbox) Look(q *Inqueue) (size HWM, full bool, waiting int) {
	in.lock()
	defer in.mu.Unlock()
	return q.size, in.full(q), q.room.Waiters()
}

// list enters q in the ring, where it may be already, and tells the receivers.
// mu must be held.
func (in *Inbox) list(q *Inqueue) {
	if !q.listed {
		q.listed = true
		in.ready.push(&q.client.ready, q)
	}
	in.some.Wake()
	in.signal()
	in.arrived()
}

// unlist takes the queue at the front out of the ring. mu must be held.
func (in *Inbox) unlist() *Inqueue {
	q := in.ready.pop()
	q.listed = false
	if in.ready.count == 0 && in.shelf.bytes != nil {
		in.shelf = shelf{} // an idle socket keeps none
	}
	return q
}

// delist removes q from the ring, if it is there. mu must be held.
func (in *Inbox) delist(q *Inqueue) {
	if !q.listed {
		return
	}
	in.ready.remove(&q.client.ready, q)
	q.listed = false
	in.signal()
}

// front returns the queue at the front of the ring, which has a message. It
// returns ErrWouldBlock if there is none, and ErrClosed. mu must be held, and may be
// released meanwhile.
func (in *Inbox) front() (*Inqueue, error) {
	if in.over {
		return nil, ErrClosed
	}
	for in.ready.count > 0 {
		if q := in.ready.front(); q.batches.Len() > 0 {
			return q, nil
		}
		in.fetch()
	}
	return nil, ErrWouldBlock
}

// next is front, and waits for a message. l may bound the wait.
func (in *Inbox) next(ctx context.Context, l *Limit) (*Inqueue, error) {
	for {
		q, err := in.front()
		if err != ErrWouldBlock {
			return q, err
		}
		if in.loan != nil && (ctx == NoWait || l.none()) && in.borrow(ctx) {
			continue
		}
		if err := in.some.Wait(ctx, (*locker)(in), in.done, l); err != nil {
			return nil, err
		}
	}
}

// Wait waits until there is a message, and takes none. When it returns, another
// receiver may have taken it.
func (in *Inbox) Wait(ctx context.Context, l *Limit) error {
	in.lock()
	_, err := in.next(ctx, l)
	if err == nil {
		in.some.Wake() // the token, if it was one, is for the receiver that takes the message
	}
	in.mu.Unlock()
	return err
}

// Waiting reports whether there are messages. It fetches the messages of a link, of which
// none may be for the application.
func (in *Inbox) Waiting() bool {
	in.lock()
	defer in.mu.Unlock()
	_, err := in.front()
	return err == nil
}

// TakeQueued takes one message that has been queued already, or returns
// ErrWouldBlock.
func (in *Inbox) TakeQueued() (Single, error) {
	in.lock()
	q, err := in.front()
	m, _, err := in.takeOne(q, err, false, nil)
	return m, err
}

// takeOne takes the first message of the queue at the front. If copies, it is Take. mu must be
// held, and is released.
func (in *Inbox) takeOne(q *Inqueue, err error, copies bool, own [][]byte) (m Single, copied [][]byte, _ error) {
	if err != nil {
		in.mu.Unlock()
		return m, nil, err
	}
	item := q.batches.At(0)
	m = Single{item.Chunk, item.Spans[item.next], item.From}
	cost := item.costOf(1)
	item.Cost -= cost
	item.next++
	copies = copies && m.Span.End-m.Span.Start < LargeMessage
	if copies {
		copied = in.copy(own, m.Wire(), m.From, q.size.Messages+in.ready.count-2)
	}
	last := item.next == len(item.Spans)
	switch {
	case last:
		in.spare.put(item.Spans)
		q.batches.Pop() // its reference on chunk is now ours
	case !copies:
		m.Chunk.Retain()
	}
	in.taken(q, HWM{Messages: 1, Bytes: cost}, copies && !last)
	if copies {
		if last {
			m.Chunk.Release()
		}
		m.Chunk = nil
	}
	return m, copied, nil
}

// TakeBatch exchanges b, which must be empty, for the next queued batch, and waits
// for that.
func (in *Inbox) TakeBatch(ctx context.Context, l *Limit, b *Batch) error {
	in.lock()
	q, err := in.next(ctx, l)
	if err != nil {
		in.mu.Unlock()
		return err
	}
	in.spare.put(b.Spans)
	*b = q.pop()
	in.taken(q, HWM{Messages: len(b.Spans), Bytes: b.Cost}, false)
	return nil
}

// pop removes the first batch.
func (q *Inqueue) pop() Batch {
	item := q.batches.Pop()
	if item.next > 0 {
		item.Spans = item.Spans[:copy(item.Spans, item.Spans[item.next:])]
	}
	return item.Batch
}

// taken moves the queue at the front, from which n was taken, to the back of the
// ring or out of it, and unlocks. Before that it begins a run of the queue, if runs.
func (in *Inbox) taken(q *Inqueue, n HWM, runs bool) {
	if q.batches.Len() > 0 {
		in.ready.next()
	} else {
		in.unlist()
	}
	told := in.settle(q, n)
	if in.ready.count > 0 {
		in.some.Wake()
	}
	in.signal()
	if runs {
		in.beginRun(q)
	}
	in.mu.Unlock()
	told.tell()
}

// settle counts messages that have left q, and lets its readers go on if there is room.
// The caller must pass on the returned receipt when mu is unlocked. mu must be held.
func (in *Inbox) settle(q *Inqueue, n HWM) (told receipt) {
	q.size.Messages -= n.Messages
	q.size.Bytes -= n.Bytes
	in.total.used -= n.Bytes
	invariants.Assert(q.batches.Len() > 0 || q.size == HWM{}, "an empty queue has nothing to count")
	if q.state == inGone {
		in.leftovers.forget(q, n, in.limits.Low().Bytes)
	}
	if q.left && q.size.Messages == 0 {
		in.clients.part(q)
	}
	if in.total.held.count > 0 {
		in.total.release()
	}
	if q.slow && q.size.Bytes < aheadBytes/2 {
		q.slow = false
	}
	if q.room.Waiters() > 0 && q.roomy() {
		q.room.Wake()
	}
	if q.link != nil {
		told = q.account(n)
	}
	return told
}

// receipt tells a link that n has left its queue, and whether the queue is empty.
type receipt struct {
	link  Link
	n     HWM
	empty bool
}

// account adds up the messages that have left the queue of a link, until they are worth a
// receipt.
func (q *Inqueue) account(n HWM) receipt {
	q.pending.Messages += n.Messages
	q.pending.Bytes += n.Bytes
	empty := q.batches.Len() == 0
	if !empty && q.pending.Messages < q.report {
		return receipt{}
	}
	told := receipt{q.link, q.pending, empty}
	q.pending = HWM{}
	return told
}

func (r *receipt) tell() {
	if r.link != nil {
		r.link.Consumed(r.n, r.empty)
	}
}

// Connect has a link fill q on demand. The link gets a receipt when report messages were
// taken, and when q is empty.
func (in *Inbox) Connect(q *Inqueue, link Link, report int) {
	in.lock()
	defer in.mu.Unlock()
	q.link, q.report = link, report
}

// Disconnect is the end of Connect: only fetched messages can still be taken.
func (in *Inbox) Disconnect(q *Inqueue) {
	in.lock()
	defer in.mu.Unlock()
	q.link = nil
	if q.batches.Len() == 0 {
		in.delist(q)
	}
}

// Offer tells the receivers that q's link has messages to fetch.
func (in *Inbox) Offer(q *Inqueue) {
	in.lock()
	in.list(q)
	in.mu.Unlock()
}

// fetch has the link of the queue at the front fill it, if there are messages. mu must be
// held, and is released meanwhile: the queue is not listed then, so no other receiver
// does the same.
func (in *Inbox) fetch() {
	link := in.unlist().link
	in.signal()
	in.mu.Unlock()
	if link != nil {
		link.Fetch()
	}
	in.lock()
}

// empty drops the messages in q. mu must be held, and is released meanwhile: the Release
// method of an Owner is the application's code.
func (in *Inbox) empty(q *Inqueue) {
	for n := q.batches.Len(); n > 0 && q.batches.Len() > 0; n-- {
		b := q.pop()
		told := in.settle(q, HWM{Messages: len(b.Spans), Bytes: b.Cost})
		in.mu.Unlock()
		b.drop()
		told.tell()
		in.lock()
		in.spare.put(b.Spans)
	}
}

// Discard drops everything that has come so far.
func (in *Inbox) Discard() {
	in.lock()
	defer in.mu.Unlock()
	// Once to drop the fetched messages, once to fetch the others, and once to drop
	// those. Messages that still come have come later.
	for n := 3 * in.ready.count; n > 0 && in.ready.count > 0; n-- {
		if in.ready.front().batches.Len() == 0 {
			in.fetch()
			continue
		}
		q := in.unlist()
		in.signal()
		in.empty(q)
	}
}

// Cut drops the messages in q, and makes Put drop later ones.
func (in *Inbox) Cut(q *Inqueue) {
	in.lock()
	defer in.mu.Unlock()
	q.state = inCut
	q.room.Wake()
	in.delist(q)
	in.empty(q)
}

// Close ends all waiting, now and later.
func (in *Inbox) Close() {
	in.lock()
	defer in.mu.Unlock()
	in.over = true
	close(in.done)
	in.recall()
	if in.watch.readable != nil {
		close(in.watch.readable)
	}
	in.Tell()
}
