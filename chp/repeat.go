package chp

import (
	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// What happens at the beginning of a session to updates that were sent in an earlier
// one and did not come back. See writer.

// meet settles what the server of a new session says about the updates that are
// kept, and sees to it that the others are sent again. mu must be held.
func (w *writer) meet(s *session) {
	a := s.applied.Load()
	switch {
	case a == nil:
		w.abandon()
		w.keeping, w.mapID = false, [mapIDSize]byte{}
		return
	case w.keeping && a.mapID == w.mapID && (a.known || a.forgotten < w.since):
		w.resume(s, a)
	default:
		w.abandon()
	}
	w.keeping, w.mapID, w.done = true, a.mapID, a.counter
	w.order = max(w.order, a.counter) // what is not above that would be taken for a repetition
	w.reclaim()
	if w.first == nil || w.first.given.messages == 0 {
		w.since = s.stream.sequence()
	}
}

// abandon makes uncertain what was sent and is not settled. It is not sent again.
// mu must be held.
func (w *writer) abandon() {
	w.client.echoes.end(w.sent)
	for s := w.first; s != nil; s = s.next {
		s.sent = s.given
		w.passBy(s)
	}
	w.turn = w.first
}

// passBy sees to it that the order numbers of updates that were sent are not
// given to others. mu must be held.
func (w *writer) passBy(s *stage) {
	if s.given.messages > 0 {
		w.order = max(w.order, s.order+uint64(s.given.messages)-1)
	}
}

// resume settles the updates that the server has taken, and moves the place from which
// updates are sent behind them. mu must be held.
func (w *writer) resume(s *session, a *applied) {
	first, last := w.client.echoes.onTheWay()
	found := false // the first update that is not settled
	for part := w.first; part != nil; part = part.next {
		var at mark
		for !found && at.bytes < part.given.bytes {
			r := kvmsg.Record(part.bytes[at.bytes:])
			r = r[:r.Size()]
			order := part.order + uint64(at.messages)
			if found = order > a.counter; found {
				w.order = order - 1
				break
			}
			if n := uuidNumber(r.UUID(), first); n > 0 && n <= last {
				w.settle(s, a, n, order, r)
			}
			at.bytes += len(r)
			at.messages++
		}
		part.sent = at
		if !found {
			w.passBy(part)
		}
	}
	w.turn = w.first
}

// settle ends counted update n, which the server has taken before the session began:
// it was applied, or refused.
func (w *writer) settle(s *session, a *applied, n, order uint64, r kvmsg.Record) {
	e := &w.client.echoes
	switch reason, skipped := a.skipped(order); {
	case !skipped:
		e.applied(n, func() int64 { return s.sequenceOf(r) })
	case reason == skipSome:
		e.lose(n, ErrUncertain)
	default:
		e.refuse(n, reason)
	}
}

// sequenceOf returns the sequence of an update that the session's snapshot covers: the
// one that the key has, if it is still as that update left it, or that of the
// snapshot.
func (s *session) sequenceOf(update kvmsg.Record) int64 {
	sequence := s.stream.sequence()
	s.replica.View(update.Key(), func(r kvmsg.Record) {
		if string(r.UUID()) == string(update.UUID()) {
			sequence = r.Seq()
		}
	})
	return sequence
}

// progress takes what the server says of the client's updates while it follows it.
// Those that come back need no more than that; what has to be known besides is which
// ones never will.
func (w *writer) progress(s *session, a *applied) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.session != s || !w.keeping || a.mapID != w.mapID {
		return
	}
	w.done = max(w.done, a.counter)
	if n := len(a.skips); n > 0 && w.first != nil && a.skips[n-1].last >= w.first.order {
		w.skip(a)
	}
	w.reclaim()
}

// skip ends the updates that the server refused, which it may have told to a
// connection that had ended. mu must be held.
func (w *writer) skip(a *applied) {
	first, last := w.client.echoes.onTheWay()
	for part := w.first; part != nil; part = part.next {
		order := part.order
		for rest := kvmsg.Record(part.bytes[:part.given.bytes]); len(rest) > 0 && order <= a.counter; order++ {
			r := rest[:rest.Size()]
			rest = rest[len(r):]
			// In a range of which it is not known what was skipped there is nothing
			// new: of what was sent over this connection all refusals have been told
			// before this.
			if reason, skipped := a.skipped(order); skipped && reason != skipSome {
				if n := uuidNumber(r.UUID(), first); n > 0 && n <= last {
					w.client.echoes.refuse(n, reason)
				}
			}
		}
	}
}

// learn takes what the server says of the client's updates out of what it sends on
// the snapshot connection before the end of the snapshot. It runs in the goroutine
// that reads the connection. The first one counts, which comes before the snapshot.
func (s *session) learn(b *sockets.Batch) {
	spans := b.Spans()
	for i := range spans {
		if isApplied(b.Message(i)) {
			s.learnFrom(b)
			return
		}
	}
}

func (s *session) learnFrom(b *sockets.Batch) {
	kept := b.Spans()[:0]
	for i, span := range b.Spans() {
		if m := b.Message(i); !isApplied(m) {
			kept = append(kept, span)
		} else if a, ok := parseApplied(m); ok {
			s.applied.CompareAndSwap(nil, a)
		}
	}
	b.SetSpans(kept)
}

// echo is a KVPUB that brings back one of the client's updates.
type echo struct {
	n   uint64
	seq int64
}

// spot notes KVPUBs that bring back updates of the client and are not applied one by
// one, because the snapshot covers them: something that was sent in an earlier session
// arrived late. covered says which ones those are; nil means that all are.
func (s *session) spot(wire []byte, spans []sockets.Span, covered func(key []byte, seq int64) bool) {
	c := s.client
	if !s.ours || !c.writing.Load() {
		return
	}
	first, last := c.echoes.onTheWay()
	if first > last {
		return
	}
	for _, span := range spans {
		r := kvmsg.Record(wire[span.Start:span.End])
		if len(r.UUID()) != kvmsg.UUIDSize || covered != nil && !covered(r.Key(), r.Seq()) {
			continue
		}
		if n, own := c.returning.number(r, first, last); own && uint64(len(s.spotted)) <= last-first {
			s.spotted = append(s.spotted, echo{n, r.Seq()})
		}
	}
}

// settleSpotted ends the updates that spot has noted.
func (s *session) settleSpotted() {
	if len(s.spotted) == 0 {
		return
	}
	e := &s.client.echoes
	e.mu.Lock()
	for _, one := range s.spotted {
		e.came(one.n, one.seq)
	}
	e.mu.Unlock()
	s.spotted = nil
	s.client.writer.settled()
}
