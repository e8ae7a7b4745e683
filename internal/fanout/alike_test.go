package fanout

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"clustermap/internal/buf"
	"clustermap/zmtp"
)

// topicsOf returns subscriptions with a group for each set of topics.
func topicsOf(sets ...[]string) *subscriptions {
	s := new(subscriptions)
	for _, set := range sets {
		topics, size := map[string]struct{}{}, 0
		for _, topic := range set {
			topics[topic] = struct{}{}
			size += len(topic)
		}
		s.groupOf(topics, size)
	}
	return s
}

// TestSortRuns compares the results of sort for whole batches with those of find for each
// message.
func TestSortRuns(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	parts := []string{"", "a", "ab", "/b/", "/bench/", "/bench/end", "/bench/end/0", "/bench/0001", "HUGZ", string(bytes.Repeat([]byte("x"), 300))}
	for range 3000 {
		sets := make([][]string, 1+random.IntN(5))
		for i := range sets {
			for range 1 + random.IntN(3) {
				sets[i] = append(sets[i], parts[random.IntN(len(parts))]+parts[random.IntN(len(parts))])
			}
		}
		s := topicsOf(sets...)
		var wire []byte
		var spans []buf.Span
		topic := ""
		for range random.IntN(40) {
			if random.IntN(3) == 0 {
				topic = parts[random.IntN(len(parts))] + parts[random.IntN(len(parts))]
			}
			first := fmt.Append(nil, topic, []string{"", "0", "1", "end"}[random.IntN(4)])
			start := len(wire)
			wire = zmtp.AppendMessage(wire, first, make([]byte, random.IntN(4)))
			spans = append(spans, buf.Span{Start: uint32(start), End: uint32(len(wire))})
		}
		want := map[*group][]byte{}
		count := map[*group]int{}
		for _, span := range spans {
			m := zmtp.WireMessage(wire[span.Start:span.End])
			topic, _ := m.Next()
			for _, g := range s.find(topic) {
				want[g] = append(want[g], m...)
				count[g]++
			}
		}
		given := spans
		if random.IntN(2) == 0 {
			given = nil
		}
		found := 0
		for _, g := range s.sort(wire, given) {
			found++
			if g.whole {
				continue
			}
			var got []byte
			for _, r := range g.runs {
				got = append(got, wire[r.Start:r.End]...)
			}
			if !bytes.Equal(got, want[g]) || g.count != count[g] {
				t.Fatalf("topics %q: %d messages %q, want %d %q", g.topics, g.count, got, count[g], want[g])
			}
		}
		for _, g := range s.all {
			if g.whole && len(spans) > 0 && count[g] == len(spans) || !g.whole && count[g] > 0 {
				found--
			}
		}
		if len(spans) > 0 && found != 0 {
			t.Fatalf("%d groups too many", found)
		}
		s.reset()
	}
}

// BenchmarkSort sorts batches of updates: all for the same group, all for none, and each
// for the next one of a thousand.
func BenchmarkSort(b *testing.B) {
	var wire, next []byte
	var spans, nextSpans []buf.Span
	var sets [][]string
	for i := range 1000 {
		sets = append(sets, []string{fmt.Sprintf("/next/%04d/", i)})
		start := len(wire)
		wire = zmtp.AppendMessage(wire, fmt.Appendf(nil, "/bench/%05d", i), make([]byte, 8), make([]byte, 16), nil, make([]byte, 32))
		spans = append(spans, buf.Span{Start: uint32(start), End: uint32(len(wire))})
		start = len(next)
		next = zmtp.AppendMessage(next, fmt.Appendf(nil, "/next/%04d/x", i), make([]byte, 8), make([]byte, 16), nil, make([]byte, 32))
		nextSpans = append(nextSpans, buf.Span{Start: uint32(start), End: uint32(len(next))})
	}
	for _, c := range []struct {
		name  string
		s     *subscriptions
		wire  []byte
		spans []buf.Span
	}{
		{"one", topicsOf([]string{"/bench/"}, []string{"HUGZ", "/other/"}), wire, spans},
		{"none", topicsOf([]string{""}, []string{"HUGZ", "/bench/end/0"}), wire, spans},
		{"next", topicsOf(sets...), next, nextSpans},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.s.sort(c.wire, c.spans)
				c.s.reset()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(c.spans)), "ns/message")
		})
	}
}
