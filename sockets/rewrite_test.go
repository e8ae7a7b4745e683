package sockets

import (
	"fmt"
	"testing"

	"clustermap/internal/buf"
	"clustermap/internal/hooks"
)

// Prepare may make messages longer: the receiver gets the new ones, and the queue
// counts the memory that they take.
func TestRewrite(t *testing.T) {
	t.Parallel()
	double := func(b *hooks.Batch) {
		old := b.Wire()
		b.Rewrite(3*len(old), func(dst []byte) []buf.Span {
			out := dst[:0]
			for i, s := range b.Spans() {
				body := old[s.Start+2 : s.End]
				start := len(out)
				out = append(out, 0, byte(2*len(body)))
				out = append(append(out, body...), body...)
				b.Spans()[i] = buf.Span{Start: uint32(start), End: uint32(len(out))}
			}
			return b.Spans()
		})
	}
	for _, at := range []string{anyPort, "inproc://rewrite"} {
		t.Run(at[:3], func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			names := new(Inproc)
			pull := open(t, NewPull, Options{Inproc: names})
			hooks.Prepare(pull, double)
			must(t, pull.Bind(ctx, at))
			push := open(t, NewPush, Options{Inproc: names})
			must(t, push.Connect(pull.LastEndpoint()))
			var b Batch
			defer b.Release()
			for n := 0; n < 1000; {
				for i := n; i < n+100; i++ {
					must(t, push.Send(ctx, fmt.Append(nil, i)))
				}
				for end := n + 100; n < end; {
					must(t, pull.RecvBatch(ctx, &b))
					for _, body := range bodies(&b) {
						if want := fmt.Sprintf("%d%d", n, n); string(body) != want {
							t.Fatalf("%q, want %s", body, want)
						}
						n++
					}
					size := 0
					for _, s := range b.engine().Spans() {
						size += int(s.End - s.Start)
					}
					if cost := b.engine().Queue().Cost; cost < size || at == anyPort && cost < len(b.engine().Wire()) {
						t.Fatalf("%d bytes are counted for %d in %d", cost, size, len(b.engine().Wire()))
					}
				}
			}
		})
	}
}

// bodies are the first frames of a batch.
func bodies(b *Batch) []string {
	var s []string
	for i := range b.Len() {
		body, _ := b.Message(i).Next()
		s = append(s, string(body))
	}
	return s
}
