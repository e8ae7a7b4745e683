package chp

import (
	"fmt"
	"sync"
	"testing"

	"clustermap/chp/internal/submit"
)

// benchBatch is 1000 updates of keys out of the given number, as one batch of
// canonical KVPUBs with sequences 1 to 1000.
func benchBatch(b *testing.B, keys, from int) []pub {
	batch := make([]pub, 1000)
	for i := range batch {
		batch[i] = pub{fmt.Sprintf("/bench/%07d", (from+i*7919)%keys), int64(i + 1), "a value of 32 bytes ............"}
	}
	return batch
}

// BenchmarkClientApply measures a replica's work for a KVPUB once it is read and hashed:
// log, index, and the queues of its watches.
func BenchmarkClientApply(b *testing.B) {
	for _, keys := range []int{10_000, 1_000_000} {
		for _, watches := range []int{0, 1, 10} {
			b.Run(fmt.Sprintf("keys=%d/watches=%d", keys, watches), func(b *testing.B) {
				c := idleClient(b, ClientOptions{})
				s := begin(b, c, 0)
				c.writer.Begin(&submit.Server{Session: nowhere{}})
				defer c.writer.Close()
				must(b, c.Set(b.Context(), "/own", []byte("value")))
				for from := 0; from < keys; from += 1000 {
					applyTo(b, &s.replica.Store, benchBatch(b, keys, from)...)
				}
				var reading sync.WaitGroup
				for range watches {
					w := openWatch(b, c)
					reading.Go(func() {
						for w.NextBatch(b.Context(), func(Event) bool { return true }) == nil {
						}
					})
				}
				wire, spans := wireBatch(b, benchBatch(b, keys, 1)...)
				b.ReportAllocs()
				b.ResetTimer()
				for i := 0; i < b.N; i += len(spans) {
					c.live.Apply(wire, spans, int64(len(spans)))
					c.writer.Applied(wire, spans)
				}
				b.StopTimer()
				c.live.Close()
				reading.Wait()
			})
		}
	}
}

// BenchmarkWatch measures a watch's work for a queued event.
func BenchmarkWatch(b *testing.B) {
	for _, form := range []string{"Next", "NextBatch"} {
		b.Run(form, func(b *testing.B) {
			c := idleClient(b, ClientOptions{})
			begin(b, c, 0)
			w := openWatch(b, c)
			must(b, w.NextBatch(b.Context(), func(Event) bool { return true }))
			wire, spans := wireBatch(b, benchBatch(b, 1000, 0)...)
			ctx := b.Context()
			b.ReportAllocs()
			for i := 0; i < b.N; i += len(spans) {
				b.StopTimer()
				c.live.Apply(wire, spans, 0)
				b.StartTimer()
				events := 0
				if form == "NextBatch" {
					must(b, w.NextBatch(ctx, func(Event) bool { events++; return true }))
				} else {
					for ; events < len(spans); events++ {
						if _, err := w.Next(ctx); err != nil {
							b.Fatal(err)
						}
					}
				}
				if events != len(spans) {
					b.Fatal(events)
				}
			}
		})
	}
}

// BenchmarkClientSet is the sender's part of an update.
func BenchmarkClientSet(b *testing.B) {
	ctx := testContext(b)
	s := startServer(b, ServerOptions{})
	c := startClient(b, s, ClientOptions{Subtrees: []string{"/flush"}})
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprintf("/bench/%07d", i)
	}
	value := []byte("a value of 32 bytes ............")
	must(b, c.WaitActive(ctx))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if err := c.Set(ctx, keys[i%len(keys)], value); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := c.SetSync(ctx, "/flush", value); err != nil {
		b.Fatal(err)
	}
}
