package member

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/txn"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/fifo"
	"clustermap/internal/kvmsg"
	"clustermap/internal/wake"
)

// item is what a client has sent, until the leader has said what became of it.
type item struct {
	kind byte
	sent
	last uint64       // number of the last update, if the relay has given them numbers
	done func(answer) // called in the order of the items; nil if nobody wants to know

	// Of requests of a client, which only the leader of the term judges to which they were sent first: their client may have
	// sent them again meanwhile, and have an answer, which another leader does not know.
	tried bool   // they were sent
	lost  func() // they are not sent again; nil for one of this process
}

func (i *item) size() int { return itemBytes + len(i.body) }

// answer is what became of an item. For a moment the map of this node has all up to a sequence.
type answer struct {
	sequence int64
	body     []byte // lent
}

// relay passes items to the leader, wherever that is, in their order.
type relay struct {
	tell      func(to uint64, note []byte) bool // Member.tell
	undecided func() bool                       // what this node has ordered may get lost: it comes before what is relayed then
	run       uint64

	sending   chan struct{} // capacity 1: there may be something to send
	finishing chan struct{} // capacity 1: done has some

	mu     sync.Mutex
	queue  fifo.Queue[*item] // without an answer
	open   int               // of them, those that what clients send must not overtake
	bytes  int               // of queue and done
	room   chan struct{}     // closed when there may be room; nil while nobody waits
	leader uint64            // 0 if there is none
	term   uint64
	stream uint64
	first  uint64    // number of the oldest item in the stream
	flying int       // number of items that were sent in the stream
	ahead  int       // their bytes
	broken bool      // a note was dropped
	moved  time.Time // when something was last answered, or sent while nothing was under way
	done   fifo.Queue[finished]

	own    ledger.ID // numbers the updates of clients that do not
	number uint64

	ours      ledger.ID // numbers the updates and requests of this process
	ourNumber uint64
	mark      txn.Mark // of the requests
	requests  uint64   // so many
}

type finished struct {
	item *item
	answer
}

func newRelay(tell func(uint64, []byte) bool, undecided func() bool) *relay {
	r := &relay{tell: tell, undecided: undecided, own: newNodeID(), ours: newNodeID(), run: rand.Uint64(), sending: make(chan struct{}, 1), finishing: make(chan struct{}, 1)}
	r.mark = txn.NewMark()
	return r
}

// newNodeID returns an identity that nobody has had.
func newNodeID() ledger.ID { return ledger.NodeID(binary.BigEndian.AppendUint64(nil, rand.Uint64())) }

// busy reports whether there are updates or requests.
func (r *relay) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open > 0
}

// wait waits until another item may be added.
func (r *relay) wait(ctx context.Context) error {
	for {
		r.mu.Lock()
		if r.bytes < relayBytes {
			r.mu.Unlock()
			return nil
		}
		if r.room == nil {
			r.room = make(chan struct{})
		}
		room := r.room
		r.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// add adds an item.
func (r *relay) add(i *item) {
	r.mu.Lock()
	r.push(i)
	r.mu.Unlock()
}

// push is add with mu held.
func (r *relay) push(i *item) {
	r.queue.Push(i)
	r.bytes += i.size()
	if i.kind != kindLeases {
		r.open++
	}
	if r.flying < r.queue.Len() && r.ahead < windowBytes {
		wake.Signal(r.sending)
	}
}

// updatesOf returns an item with updates.
func updatesOf(records []byte, spans []buf.Span, from order.From) *item {
	size := 0
	for _, s := range spans {
		size += int(s.End - s.Start)
	}
	i := &item{kind: kindUpdates, sent: sent{client: from.ID, by: from.By, body: make([]byte, 0, size)}}
	for _, s := range spans {
		i.body = append(i.body, records[s.Start:s.End]...)
	}
	return i
}

// updates adds updates of a client.
func (r *relay) updates(records []byte, spans []buf.Span, from order.From, done func(repeated bool, records []byte, unfit []buf.Span)) {
	i := updatesOf(records, spans, from)
	if done != nil {
		i.done = func(a answer) {
			repeated, unfit := parseUpdated(a.body, i.body)
			done(repeated, i.body, unfit)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(spans) > 0 && (!from.Numbered || kvmsg.Record(i.body).Seq() == 0) {
		r.number = i.give(r.own, r.number)
	}
	r.push(i)
}

// updatesOfOurs adds updates of this process. done gets the number of the last one, whether some had come before, the
// sequence of the last one if not, and how many the map has no room for.
func (r *relay) updatesOfOurs(records []byte, spans []buf.Span, done func(number uint64, repeated bool, last int64, unfit int)) {
	i := updatesOf(records, spans, order.From{})
	i.done = func(a answer) {
		repeated, unfit := parseUpdated(a.body, i.body)
		done(i.last, repeated, a.sequence, len(unfit))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ourNumber = i.give(r.ours, r.ourNumber)
	r.push(i)
}

// give gives the updates of an item the numbers of an identity, behind one. It returns the last one.
func (i *item) give(id ledger.ID, number uint64) uint64 {
	i.client = id
	spans, _ := kvmsg.SpansOf(i.body, nil)
	for _, s := range spans {
		number++
		kvmsg.Record(i.body[s.Start:s.End]).SetSeq(int64(number))
	}
	i.last = number
	return number
}

// resend adds updates without a number that were ordered by this node and are lost, in front of all that came later. Their numbers
// are those of an identity of their own: what is behind them may have been sent.
func (r *relay) resend(records []byte) {
	var all []*item
	id := newNodeID()
	number := uint64(0)
	spans, _ := kvmsg.SpansOf(records, nil)
	for len(spans) > 0 {
		n := 1
		for n < len(spans) && spans[n].End-spans[0].Start <= resendBytes {
			n++
		}
		i := updatesOf(records, spans[:n], order.From{})
		spans = spans[n:]
		number = i.give(id, number)
		all = append(all, i)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range slices.Backward(all) {
		r.queue.PushFront(i)
		r.bytes += i.size()
		r.open++
	}
	r.restart()
}

// requestOfOurs adds a request of this process, which has the map up to a sequence, or of somebody for whom it acts. done gets the
// answer.
func (r *relay) requestOfOurs(q *txn.Request, by string, since int64, done func(answer []byte)) {
	i := &item{kind: kindRequests, sent: sent{by: by, body: q.Append(make([]byte, 0, q.Size()))}, done: func(a answer) { done(bytes.Clone(a.body)) }}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	i.client = r.ours
	txn.Stamp(i.body, r.mark, r.requests, since)
	r.push(i)
}

// requestsOf adds requests of a client.
func (r *relay) requestsOf(messages []byte, spans []buf.Span, from order.From, done func(answers []byte), lost func()) {
	i := &item{kind: kindRequests, sent: sent{client: from.ID, generation: from.Generation, by: from.By}, done: func(a answer) { done(a.body) }, lost: lost}
	for _, s := range spans {
		at := len(i.body)
		i.body = append(i.body, messages[s.Start:s.End]...)
		txn.Again(i.body[at:]) // it may have come by another way
	}
	r.add(i)
}

// leases adds a question about leases.
func (r *relay) leases(kind wire.LeaseKind, ids []kvmsg.LeaseID, done func(left []time.Duration)) {
	i := &item{kind: kindLeases, done: func(a answer) { done(parseLeft(a.body)) }}
	i.body = append(i.body, byte(kind))
	for _, id := range ids {
		i.body = append(i.body, id[:]...)
	}
	r.add(i)
}

// led says who leads in which term, 0 if nobody does.
func (r *relay) led(leader, term uint64) {
	r.mu.Lock()
	if r.leader == leader && r.term == term {
		r.mu.Unlock()
		return
	}
	var lost []*item
	if r.term != term {
		r.queue.DeleteFunc(func(i *item) bool {
			if i.kind != kindRequests || !i.tried || i.lost == nil {
				return false
			}
			lost = append(lost, i)
			r.bytes -= i.size()
			r.open--
			return true
		})
	}
	r.leader, r.term = leader, term
	r.restart()
	r.wakeRoom()
	r.mu.Unlock()
	for _, i := range lost {
		i.lost()
	}
}

// wakeRoom wakes those who wait for room, if there is some. mu must be held.
func (r *relay) wakeRoom() {
	if r.room != nil && r.bytes < relayBytes {
		close(r.room)
		r.room = nil
	}
}

// restart begins another stream. mu must be held.
func (r *relay) restart() {
	r.stream++
	r.first, r.flying, r.ahead, r.broken = 1, 0, 0, false
	wake.Signal(r.sending)
}

// runSending sends items, until the context ends.
func (r *relay) runSending(ctx context.Context) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-r.sending:
		case <-look.C:
			r.mu.Lock()
			if r.broken || r.flying > 0 && time.Since(r.moved) > repeatAfter {
				r.restart()
			}
			r.mu.Unlock()
		case <-ctx.Done():
			return
		}
		r.send()
	}
}

// send sends what it may.
func (r *relay) send() {
	for {
		r.mu.Lock()
		stream := r.stream
		r.mu.Unlock()
		if r.undecided() {
			return // until the next look
		}
		r.mu.Lock()
		if r.stream != stream || r.leader == 0 || r.broken || r.flying >= r.queue.Len() || r.ahead >= windowBytes {
			r.mu.Unlock()
			return
		}
		i := *r.queue.At(r.flying)
		p := place{i.kind, r.term, r.run, r.stream, r.first + uint64(r.flying)}
		to := r.leader
		if r.flying == 0 {
			r.moved = time.Now()
		}
		if i.tried && i.kind == kindRequests {
			txn.Again(i.body)
		}
		i.tried = true
		r.flying++
		r.ahead += i.size()
		r.mu.Unlock()
		note := appendPlace(make([]byte, 0, noteHead+len(i.client)+2+len(i.by)+len(i.body)), noteItem, p)
		if !r.tell(to, appendSent(note, &i.sent)) {
			r.mu.Lock()
			r.broken = r.broken || r.stream == p.stream
			r.mu.Unlock()
		}
	}
}

// answered takes an answer.
func (r *relay) answered(p place, body []byte) {
	if len(body) < 8 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case p.run != r.run || p.stream != r.stream || p.number < r.first:
		return
	case p.number > r.first || r.flying == 0: // one is missing
		r.broken = true
		return
	}
	i := r.queue.Pop()
	r.ahead -= i.size()
	if i.kind != kindLeases {
		r.open--
	}
	r.flying--
	r.first++
	r.moved = time.Now()
	if r.flying < r.queue.Len() {
		wake.Signal(r.sending)
	}
	if i.done == nil {
		r.free(i)
		return
	}
	r.done.Push(finished{i, answer{int64(binary.BigEndian.Uint64(body)), body[8:]}})
	wake.Signal(r.finishing)
}

// free gives back the memory of an item. mu must be held.
func (r *relay) free(i *item) {
	r.bytes -= i.size()
	r.wakeRoom()
}

// runFinishing passes answers to those who wait for them, when shown says that this node has all up to their sequence.
func (r *relay) runFinishing(ctx context.Context, shown func(context.Context, int64) error) {
	for {
		r.mu.Lock()
		if r.done.Len() == 0 {
			r.mu.Unlock()
			select {
			case <-r.finishing:
				continue
			case <-ctx.Done():
				return
			}
		}
		f := r.done.Pop()
		r.mu.Unlock()
		if shown(ctx, f.sequence) != nil {
			return
		}
		f.item.done(f.answer)
		r.mu.Lock()
		r.free(f.item)
		r.mu.Unlock()
	}
}
