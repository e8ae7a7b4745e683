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

// noMap is the identity of a map of which no server knows what has passed.
var noMap [ledger.MapIDSize]byte

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
	if f.past == noMap || !s.resumes {
		return false, nil
	}
	request, ok := wire.SinceRequest(f.past, f.opts.Replica.Now().Place(), s.requests.List)
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
			f.past = noMap
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
	before := f.opts.Replica.Now().Place()
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
	if end.ID != f.past || end.Sequence < f.opts.Replica.Now().Place() {
		return ErrNotCHP
	}
	f.opts.Replica.Skipped(end.Last, end.Sequence)
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
		f.past = noMap // subtrees are at different sequences
	}
}
