package queue

import "clustermap/internal/buf"

// Run is a range of bytes of messages in wire form.
type Run struct{ Start, End int }

// SizeOf returns the size of runs.
func SizeOf(runs []Run) (n int) {
	for _, r := range runs {
		n += r.End - r.Start
	}
	return n
}

// AppendRuns appends runs of wire.
func AppendRuns(dst, wire []byte, runs []Run) []byte {
	for _, r := range runs {
		dst = append(dst, wire[r.Start:r.End]...)
	}
	return dst
}

// Contiguous returns how many of the first spans are contiguous.
func Contiguous(spans []buf.Span) int {
	n := 1
	for n < len(spans) && spans[n].Start == spans[n-1].End {
		n++
	}
	return n
}

// OfferSpans appends the messages at spans, each preceded by lead, as many as
// the high-water mark allows. If to is not nil, they are only for that
// connection. It returns the number of messages, and Accepted if there are any.
// Large runs are lent if there is an owner and no lead.
func (o *Outbox) OfferSpans(to *Conn, lead, wire []byte, spans []buf.Span, owner Owner) (int, Verdict) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if v := o.admit(to); v != Accepted {
		return 0, v
	}
	spans = spans[:min(len(spans), o.left().Messages)]
	sent := len(spans)
	for len(spans) > 0 {
		n := 1
		if len(lead) == 0 {
			n = Contiguous(spans)
		}
		run := wire[spans[0].Start:spans[n-1].End]
		if len(lead) == 0 && owner != nil && len(run) >= LendFrom {
			o.enter(run, n, owner)
		} else {
			st, before := o.queue.begin(len(lead)+len(run), o.conflate)
			st.Bytes = append(append(st.Bytes, lead...), run...)
			o.commit(before, n)
		}
		spans = spans[n:]
	}
	o.wake()
	return sent, Accepted
}
