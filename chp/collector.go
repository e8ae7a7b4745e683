package chp

import (
	"context"
	"time"

	"clustermap/sockets"
)

// collect checks and hashes the updates of one client. It runs in the
// goroutine that reads that client's connection, so clients are decoded in
// parallel; what it refuses is counted and goes no further.
func (s *Server) collect(b *sockets.Batch) {
	wire, spans := b.Wire(), b.Spans()
	kept := spans[:0]
	for _, span := range spans {
		size, tag, _, err := inspect(wire[span.Start:span.End], fromClient, s.opts.MaxValueSize)
		if err != nil {
			s.refused.add(err)
			continue
		}
		span.End = span.Start + uint32(size)
		span.Tag = tag
		kept = append(kept, span)
	}
	b.SetSpans(kept)
}

// runCollector brings what the clients send to the sequencer.
func (s *Server) runCollector(ctx context.Context) {
	var b sockets.Batch
	defer b.Release()
	pace := newPacer(s.opts.SlowestIntake, s.publisher.Fullest)
	for s.collector.RecvBatch(ctx, &b) == nil {
		// Before the sequencer's mutex is taken, under which nothing waits.
		if wait := pace.next(extent(b.Spans()), time.Now()); wait > 0 && !pause(ctx, wait) {
			return
		}
		s.sequencer.take(&b)
	}
}

// extent returns how many bytes lie between the beginning of the first message and
// the end of the last.
func extent(spans []sockets.Span) int {
	if len(spans) == 0 {
		return 0
	}
	return int(spans[len(spans)-1].End - spans[0].Start)
}
