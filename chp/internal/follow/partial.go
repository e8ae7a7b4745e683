package follow

import (
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// partial holds the updates of a transaction that has not arrived as a whole, so that no reader
// sees a part of it. A client of subtrees does not get all of its updates: there it is complete
// when the server says that it has gone on. The zero partial is empty.
type partial struct {
	wire  []byte
	spans []buf.Span
	end   int64 // sequence of the transaction's last update
	seq   int64 // and of the first one here
}

// pending reports whether some updates are held.
func (p *partial) pending() bool { return len(p.spans) > 0 }

// before returns the sequence up to which updates are complete, given that of the last one.
func (p *partial) before(last int64) int64 {
	if p.pending() {
		return min(last, p.seq-1)
	}
	return last
}

// whole returns the updates to apply now, given the next ones, and the highest sequence that the
// server has named: those that were held, too, if they are complete. What it returns is valid until the
// next call. What is held is copied, once.
func (p *partial) whole(wire []byte, spans []buf.Span, known int64) ([]byte, []buf.Span) {
	held := *p
	if held.pending() {
		held.add(wire, spans)
		wire, spans = held.wire, held.spans
	}
	*p = partial{}
	if len(spans) == 0 || spans[len(spans)-1].Tag&kvmsg.TagProperties == 0 {
		return wire, spans // as nearly always
	}
	end := func(i int) (seq, end int64) {
		r := kvmsg.Record(wire[spans[i].Start:spans[i].End])
		seq = r.Seq()
		return seq, seq + int64(kvmsg.MoreOf(r, spans[i].Tag))
	}
	first := len(spans) - 1
	seq, last := end(first)
	if seq == last || known >= last {
		return wire, spans
	}
	if held.pending() && last == held.end {
		*p = held // all are of one transaction
		return nil, nil
	}
	for first > 0 {
		before, its := end(first - 1)
		if its != last {
			break
		}
		first, seq = first-1, before
	}
	*p = partial{end: last, seq: seq}
	p.add(wire, spans[first:])
	return wire, spans[:first]
}

// add appends updates to those that are held.
func (p *partial) add(wire []byte, spans []buf.Span) {
	for _, span := range spans {
		start := uint32(len(p.wire))
		p.wire = append(p.wire, wire[span.Start:span.End]...)
		p.spans = append(p.spans, buf.Span{Start: start, End: uint32(len(p.wire)), Tag: span.Tag})
	}
}
