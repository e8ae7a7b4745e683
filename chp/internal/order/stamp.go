package order

import (
	"clustermap/chp/internal/state"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/timer"
)

// stamper adds the time and the author to updates, in copies, since they become longer. The
// mutex guards it.
type stamper struct {
	lines []byte // of the present batch
	wire  []byte
	spans []buf.Span
}

// stamp makes the updates of an entry have a stamp, or only those that grant leases. The copies are valid until the
// next call.
func (s *stamper) stamp(e *state.Entry, by string, leases bool) {
	s.lines = kvmsg.AppendStamp(s.lines[:0], timer.TimeOf(e.At), by)
	s.wire, s.spans = s.wire[:0], s.spans[:0]
	if cap(s.wire) > keepStamped {
		s.wire, s.spans = nil, nil
	}
	for _, span := range e.Spans {
		start := len(s.wire)
		if r := kvmsg.Record(e.Wire[span.Start:span.End]); leases && !(kvmsg.IsHidden(r.Key()) && len(r.Value()) > 0) {
			s.wire = append(s.wire, r...)
			s.spans = append(s.spans, buf.Span{Start: uint32(start), End: uint32(len(s.wire)), Tag: span.Tag})
			continue
		}
		s.wire = kvmsg.AppendWith(s.wire, e.Wire[span.Start:span.End], s.lines)
		s.spans = append(s.spans, buf.Span{Start: uint32(start), End: uint32(len(s.wire)), Tag: span.Tag | kvmsg.TagProperties})
	}
	e.Wire, e.Spans = s.wire, s.spans
}

// grown returns by how much a number of updates of an author may grow by their stamps.
func (q *Sequencer) grown(updates int, by string) int64 {
	if !q.o.Stamp {
		return 0
	}
	return int64(updates * kvmsg.StampGrowth(by))
}
