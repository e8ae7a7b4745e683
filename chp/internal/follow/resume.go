package follow

import (
	"fmt"
	"math"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// position is where the replica is in the history of a map: what a server is told that the
// client has. The run goroutine owns it; the replica's sequence is the rest of it.
type position struct {
	id   [ledger.MapIDSize]byte // of the map; zero if the position is not known
	cut  int64                  // the sequence that the last snapshot, or tail, brought the replica to
	last int64                  // that of the last update in it, from which no sequence was skipped
}

// at returns the sequence of the last update that a replica at a sequence has.
func (p *position) at(sequence int64) int64 {
	if sequence == p.cut {
		return p.last
	}
	return sequence
}

// resume brings the replica up to date with what the server has published since the end of the
// last session, if the server still knows that. Otherwise it returns false, and the client
// needs a snapshot.
//
// The updates are applied as they arrive, to the replica itself: readers and watches see what
// they would have seen without the interruption, and what has come when the connection breaks
// again need not come once more. KVPUBs wait in the socket meanwhile, which is for a shorter time
// than the tail takes to arrive: the server bounds it, and that queue.
func (s *session) resume() (resumed bool, err error) {
	f := s.owner
	if f.position.id == [ledger.MapIDSize]byte{} || !s.resumes {
		return false, nil
	}
	request, ok := wire.SinceRequest(f.position.id, f.position.at(f.opts.Replica.Sequence()), s.requests.List)
	if !ok {
		return false, nil
	}
	s.expectSnapshot()
	if err := s.dealer.Send(s.ctx, request...); err != nil {
		return false, err
	}
	var b hooks.Batch
	defer b.Release()
	for {
		if err := s.dealer.RecvBatch(s.ctx, (*sockets.Batch)(&b)); err != nil {
			return false, err
		}
		s.watchdog.heard.Or(fromSnapshot) // as in apply
		bytes, spans := b.Wire(), b.Spans()
		end := 0
		for end < len(spans) && !endsSnapshot(bytes, spans[end]) {
			end++
		}
		var last wire.End
		known := int64(math.MinInt64) // up to which everything has come
		if end < len(spans) {
			last = wire.ParseEnd(kvmsg.Record(bytes[spans[end].Start:]))
			known = last.Sequence
		}
		if err := s.passed(bytes, spans[:end], known); err != nil {
			return false, err
		}
		if end == len(spans) {
			continue
		}
		if end+1 < len(spans) {
			return false, ErrNotCHP // nothing else was asked
		}
		if last.Compacted {
			f.position = position{}
			return false, nil
		}
		return true, s.rejoin(&last)
	}
}

// passed applies updates that have passed while the client had no server, and holds those of a
// transaction that has not come as a whole.
func (s *session) passed(wire []byte, spans []buf.Span, known int64) error {
	wire, spans = s.partial.whole(wire, spans, known)
	if len(spans) == 0 {
		return nil
	}
	f := s.owner
	before := f.opts.Replica.Sequence()
	if before == f.position.cut {
		before = f.position.last
	}
	for _, span := range spans {
		seq := kvmsg.Record(wire[span.Start:]).Seq()
		if seq <= before {
			return fmt.Errorf("%w: update %d comes after %d", ErrNotCHP, seq, before)
		}
		before = seq
	}
	f.opts.Replica.Apply(wire, spans, before)
	f.Counted.Updates.Add(uint64(len(spans)))
	f.syncs.came(before)
	return s.fits(f.opts.Replica.Now().Store.LiveBytes() + len(s.partial.wire))
}

// rejoin ends a resumption: the replica has everything up to the end.
func (s *session) rejoin(end *wire.End) error {
	f := s.owner
	s.watchdog.expect(0, 0)
	s.joined.Store(true)
	s.end = *end
	if end.ID != f.position.id || end.Sequence < f.position.at(f.opts.Replica.Sequence()) {
		return ErrNotCHP
	}
	cuts := make([]int64, len(s.requests.List))
	for i := range cuts {
		cuts[i] = end.Sequence
	}
	if err := s.stream.join(cuts); err != nil {
		return err
	}
	s.replica, s.resumed = f.opts.Replica.Now(), true
	return nil
}

// settle notes where the replica is, at the end of a session that was ACTIVE, if the next one can
// go on from there.
func (s *session) settle() {
	f := s.owner
	if !s.stream.complete() {
		f.position = position{} // subtrees are at different sequences
	}
}
