package queue

import (
	"context"

	"clustermap/internal/buf"
	"clustermap/internal/invariants"
)

// run is the messages that calls of Take get next, at the cost of a lock and a copy each:
// the first ones of a queue, but for the last of their batch. Its rule is that nobody can
// tell: the messages are in their queue, where any other call finds those that are left,
// and lock counts those that were handed out, as if each had been counted when it was.
// So a run has only messages after which there is nothing to do but to count: no turn to
// give to another queue, nobody to wake, and no receipt to send.
type run struct {
	q     *Inqueue   // nil: there is none
	spans []buf.Span // those of the messages
	next  int        // of which so many were handed out
	wire  []byte
	from  *Conn
}

// lock locks mu, for all code but Take, and ends the run.
func (in *Inbox) lock() {
	in.mu.Lock()
	in.endRun()
}

// locker is an inbox for code that only locks it.
type locker Inbox

func (l *locker) Lock()   { (*Inbox)(l).lock() }
func (l *locker) Unlock() { l.mu.Unlock() }

// endRun counts the messages that were handed out of the run. mu must be held.
func (in *Inbox) endRun() {
	r := &in.run
	if r.q == nil {
		return
	}
	if r.next > 0 {
		item := r.q.batches.At(0)
		n := HWM{Messages: r.next, Bytes: item.costOf(r.next)}
		item.Cost -= n.Bytes
		item.next += n.Messages
		told := in.settle(r.q, n)
		invariants.Assert(told.link == nil, "a run ends before a receipt is due")
	}
	*r = run{}
}

// costOf returns the cost of the next n messages: what is not a multiple of the number of
// messages is the cost of the last ones.
func (b *inbatch) costOf(n int) int {
	left := len(b.Spans) - b.next
	return n*(b.Cost/left) + max(0, n-(left-b.Cost%left))
}

// beginRun begins a run of the queue at the front, from which a message was just taken.
// mu must be held.
func (in *Inbox) beginRun(q *Inqueue) {
	if in.ready.count != 1 || in.watch.readable != nil || in.total.held.count > 0 || in.leftovers.newcomers.Waiters() > 0 {
		return
	}
	item := q.batches.At(0)
	left := len(item.Spans) - item.next
	n := left - 1 // the last one takes the batch out of its queue
	if q.link != nil {
		n = min(n, q.report-q.pending.Messages-1)
	}
	if q.room.Waiters() > 0 && !q.roomy() {
		// The first message that makes room is not of the run.
		n = min(n, max(q.size.Messages-q.until.Messages, (q.size.Bytes-q.until.Bytes)/(item.Cost/left+1)))
	}
	if n > 0 {
		in.run = run{q: q, spans: item.Spans[item.next : item.next+n], wire: item.Chunk.Data(), from: item.From}
	}
}

// roomy reports whether there is room for the readers that wait.
func (q *Inqueue) roomy() bool {
	return q.size.Messages < q.until.Messages && q.size.Bytes < q.until.Bytes || q.size.Messages == 0
}

// Take takes one message, and waits for it. If it is smaller than LargeMessage, Take returns a
// copy, in the frames of own and their memory, or in new memory if own has no room for a
// frame; the Single says only where it is from. Otherwise there is no copy.
func (in *Inbox) Take(ctx context.Context, l *Limit, own [][]byte) (m Single, copied [][]byte, err error) {
	in.mu.Lock()
	if r := &in.run; r.next < len(r.spans) {
		if s := &r.spans[r.next]; s.End-s.Start < LargeMessage {
			r.next++
			copied = in.copy(own, r.wire[s.Start:s.End:s.End], r.from, len(r.spans)-r.next)
			m.From = r.from
			in.some.Wake()
			in.mu.Unlock()
			return m, copied, nil
		}
	}
	in.endRun()
	q, err := in.next(ctx, l)
	return in.takeOne(q, err, true, own)
}

// copy returns a copy of a message that belongs to the application. follow is how many
// other messages will probably be copied after it. mu must be held.
func (in *Inbox) copy(own [][]byte, wire []byte, from *Conn, follow int) [][]byte {
	var lead []byte
	if in.lead != nil {
		lead = in.lead(from)
	}
	if cap(own) > 0 {
		return Refill(own, wire, lead)
	}
	m, made := in.shelf.copy(wire, lead, follow)
	if made > 0 {
		buf.Allocated(made)
	}
	return m
}
