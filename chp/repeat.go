package chp

import (
	"clustermap/chp/internal/ledger"
	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// This file handles updates that were sent in an earlier session and have not come
// back when the next session begins. See writer.

// meet settles the kept updates that the server of a new session has accepted, and
// arranges for the others to be sent again. mu must be held.
func (w *writer) meet(s *session) {
	a := s.applied.Load()
	switch {
	case a == nil:
		w.abandon()
		w.keeping, w.mapID = false, [ledger.MapIDSize]byte{}
		return
	case w.keeping && a.MapID == w.mapID && (a.Known || a.Forgotten < w.since):
		w.resume(s, a)
	default:
		w.abandon()
	}
	w.keeping, w.mapID, w.done = true, a.MapID, a.Counter
	w.order = max(w.order, a.Counter) // the server would skip lower numbers as repeated
	w.reclaim()
	if w.first == nil || w.first.given.messages == 0 {
		w.since = s.stream.sequence()
	}
}

// abandon makes the updates uncertain that were sent and are not settled. They are not
// sent again. mu must be held.
func (w *writer) abandon() {
	w.client.echoes.end(w.sent)
	for s := w.first; s != nil; s = s.next {
		s.sent = s.given
		w.passBy(s)
	}
	w.turn = w.first
}

// passBy makes sure that the order numbers of a stage's sent updates are not used
// again. mu must be held.
func (w *writer) passBy(s *stage) {
	if s.given.messages > 0 {
		w.order = max(w.order, s.order+uint64(s.given.messages)-1)
	}
}

// resume settles the updates that the server has accepted, and moves the position from
// which updates are sent behind them. mu must be held.
func (w *writer) resume(s *session, a *ledger.Reply) {
	first, last := w.client.echoes.onTheWay()
	found := false // the first update that is not settled
	for part := w.first; part != nil; part = part.next {
		var at mark
		for !found && at.bytes < part.given.bytes {
			r := kvmsg.Record(part.bytes[at.bytes:])
			r = r[:r.Size()]
			order := part.order + uint64(at.messages)
			if found = order > a.Counter; found {
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

// settle settles counted update n, which the server accepted or skipped before the
// session began.
func (w *writer) settle(s *session, a *ledger.Reply, n, order uint64, r kvmsg.Record) {
	e := &w.client.echoes
	switch reason, skipped := a.Skipped(order); {
	case !skipped:
		e.applied(n, func() int64 { return s.sequenceOf(r) })
	case reason == ledger.SkipSome:
		e.lose(n, ErrUncertain)
	default:
		e.refuse(n, reason)
	}
}

// sequenceOf returns the sequence of an update that the session's snapshot covers: that
// of the key if this update is still its latest one, otherwise that of the snapshot.
func (s *session) sequenceOf(update kvmsg.Record) int64 {
	sequence := s.stream.sequence()
	s.replica.View(update.Key(), func(r kvmsg.Record) {
		if string(r.UUID()) == string(update.UUID()) {
			sequence = r.Seq()
		}
	})
	return sequence
}

// progress handles a progress report during a session. Updates to the client's subtrees
// come back as KVPUBs; the report settles those that never will.
func (w *writer) progress(s *session, a *ledger.Reply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.session != s || !w.keeping || a.MapID != w.mapID {
		return
	}
	w.done = max(w.done, a.Counter)
	if n := len(a.Skips); n > 0 && w.first != nil && a.Skips[n-1].Last >= w.first.order {
		w.skip(a)
	}
	w.reclaim()
}

// skip settles the updates that the server refused. The refusals may have been sent to
// a connection that had ended. mu must be held.
func (w *writer) skip(a *ledger.Reply) {
	first, last := w.client.echoes.onTheWay()
	for part := w.first; part != nil; part = part.next {
		order := part.order
		for rest := kvmsg.Record(part.bytes[:part.given.bytes]); len(rest) > 0 && order <= a.Counter; order++ {
			r := rest[:rest.Size()]
			rest = rest[len(r):]
			// A range with skipSome contains nothing new: all refusals of updates that
			// were sent over this connection were reported before this.
			if reason, skipped := a.Skipped(order); skipped && reason != ledger.SkipSome {
				if n := uuidNumber(r.UUID(), first); n > 0 && n <= last {
					w.client.echoes.refuse(n, reason)
				}
			}
		}
	}
}

// learn removes progress reports from the messages that arrive on the snapshot
// connection before the end of the snapshot, and stores the first one, which comes
// before the snapshot. It runs in the goroutine that reads the connection.
func (s *session) learn(b *sockets.Batch) {
	spans := b.Spans()
	for i := range spans {
		if ledger.IsReply(b.Message(i)) {
			s.learnFrom(b)
			return
		}
	}
}

func (s *session) learnFrom(b *sockets.Batch) {
	kept := b.Spans()[:0]
	for i, span := range b.Spans() {
		if m := b.Message(i); !ledger.IsReply(m) {
			kept = append(kept, span)
		} else if a, ok := ledger.ParseReply(m); ok {
			s.applied.CompareAndSwap(nil, a)
		}
	}
	b.SetSpans(kept)
}

// echo is a KVPUB with one of the client's own updates.
type echo struct {
	n   uint64
	seq int64
}

// spot records KVPUBs of the client's own updates that are not applied one by one
// because the snapshot covers them: updates that were sent in an earlier session and
// arrived late. covered reports whether the snapshot covers a KVPUB; nil means that it
// covers all.
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

// settleSpotted settles the updates that spot has recorded.
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
