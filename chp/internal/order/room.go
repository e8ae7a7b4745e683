package order

import (
	"math"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// mapRoom returns the number of bytes by which the map may grow. mu must be held.
func (q *Sequencer) mapRoom() int64 {
	if q.o.MaxBytes == 0 {
		return math.MaxInt64
	}
	return q.o.MaxBytes - int64(q.state.Store.LiveBytes())
}

// fits reports whether updates of an author can be ordered now. If the map may have no room for all of
// them, all that are held must be in it first. mu must be held.
func (q *Sequencer) fits(spans []buf.Span, by string) bool {
	q.held.tight = !q.held.empty() && (q.held.tight || q.o.MaxBytes > 0 && int64(buf.Extent(spans))+q.grown(len(spans), by) > q.mapRoom()-int64(q.held.bytes))
	return !q.held.tight
}

// fitting returns the updates of an author that the map has room for, in the memory of spans. It
// counts the others as refused and adds them to unfit. Deletions always fit, and so
// do updates that are no larger than the record that they replace. Space that a batch
// frees counts only for the next batch. mu must be held.
func (q *Sequencer) fitting(wire []byte, spans []buf.Span, by string) []buf.Span {
	room := q.mapRoom()
	kept := spans[:0]
	for _, span := range spans {
		if span.Tag&kvmsg.TagDelete == 0 {
			grows := int64(span.End-span.Start) + q.grown(1, by)
			key := kvmsg.Record(wire[span.Start:span.End]).Key()
			grows -= int64(q.state.Store.SizeOf(span.Tag&^kvmsg.TagFlags, key))
			if grows > 0 {
				if grows > room {
					q.refuse(span, kvmsg.ErrMapFull)
					continue
				}
				room -= grows
			}
		}
		kept = append(kept, span)
	}
	return kept
}

// refuse counts an update as refused, and adds it to unfit with the reason as its tag. mu must be held.
func (q *Sequencer) refuse(span buf.Span, err *kvmsg.MessageError) {
	q.o.Refused(err)
	span.Tag = uint64(err.Reason)
	q.scratch.unfit = append(q.scratch.unfit, span)
}
