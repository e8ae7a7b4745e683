package chp

import (
	"testing"

	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// BenchmarkSchedule looks for times to live and deletions in batches that have none.
func BenchmarkSchedule(b *testing.B) {
	var q sequencer
	q.init(nil, 0, new(refusals))
	spans := make([]sockets.Span, 1000)
	for i := range spans {
		spans[i].Tag = kvmsg.HashKey([]byte{byte(i), byte(i >> 8)})
	}
	for b.Loop() {
		q.schedule(nil, spans, 1, 0)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(spans)), "ns/update")
}
