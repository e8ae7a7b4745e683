//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/chp/durable"
	"clustermap/internal/loopback"
)

// BenchmarkConditions measures updates with a condition, of one client with many on their way,
// beside as many without in the same run: "ratio" is the rate divided by that of Set. All of
// them are made and in the client's replica when the time ends. An operation is one update with a
// condition.
func BenchmarkConditions(b *testing.B) {
	for _, journal := range []string{"memory", "data"} {
		b.Run(journal, func(b *testing.B) {
			ctx := b.Context()
			c := conditionsClient(b, conditionsServer(b, journal))
			const keys = 10_000
			var names [keys]string
			for i := range names {
				names[i] = fmt.Sprintf("/key/%05d", i)
			}
			value := make([]byte, 32)
			set := func(n int) {
				for i := range n {
					if err := c.Set(ctx, names[i%keys], value); err != nil {
						b.Fatal(err)
					}
				}
				if err := c.Flush(ctx); err != nil {
					b.Fatal(err)
				}
			}
			// Several goroutines, so that some make batches while those of others are on their way.
			const size = 2048
			present := chp.IfPresent()
			var batches [4]chp.BatchIf
			setIf := func(n int) {
				var left atomic.Int64
				left.Store(int64(n))
				var running sync.WaitGroup
				for i := range batches {
					batch := &batches[i]
					running.Go(func() {
						for {
							end := left.Add(-size) + size
							if end <= 0 {
								return
							}
							batch.Reset()
							for i := max(0, end-size); i < end; i++ {
								batch.Set(names[i%keys], value, present)
							}
							if err := c.ApplyEach(ctx, batch); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				running.Wait()
			}
			set(keys)
			setIf(keys)
			var plain, conditional time.Duration
			const round = 50_000
			b.ResetTimer()
			for left := b.N; left > 0; left -= round {
				n := min(left, round)
				b.StopTimer()
				begun := time.Now()
				set(n)
				plain += time.Since(begun)
				b.StartTimer()
				begun = time.Now()
				setIf(n)
				conditional += time.Since(begun)
			}
			b.ReportMetric(plain.Seconds()/conditional.Seconds(), "ratio")
			b.ReportMetric(float64(b.N)/conditional.Seconds(), "updates/s")
			b.ReportMetric(float64(b.N)/plain.Seconds(), "sets/s")
		})
	}
}

// BenchmarkContended measures clients that all set one key on the condition that it has not changed.
// An operation is one outcome, a success or a conflict.
func BenchmarkContended(b *testing.B) {
	for _, clients := range []int{2, 8} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			ctx := b.Context()
			server := conditionsServer(b, "memory")
			var left, made atomic.Int64
			left.Store(int64(b.N))
			var running sync.WaitGroup
			for range clients {
				c := conditionsClient(b, server)
				if err := c.WaitActive(ctx); err != nil {
					b.Fatal(err)
				}
				for range 8 {
					running.Go(func() {
						for seq := int64(0); left.Add(-1) >= 0; {
							next, err := c.SetIf(ctx, "/contended", strconv.AppendInt(nil, seq, 10), chp.IfSequence(seq))
							var conflict *chp.ConflictError
							switch {
							case err == nil:
								seq = next
								made.Add(1)
							case errors.As(err, &conflict):
								seq = conflict.Sequence
							case ctx.Err() == nil:
								b.Error(err)
								return
							}
						}
					})
				}
			}
			b.ResetTimer()
			running.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "outcomes/s")
			b.ReportMetric(float64(made.Load())/b.Elapsed().Seconds(), "made/s")
		})
	}
}

// conditionsServer starts a server and returns it and its name for clients.
func conditionsServer(b *testing.B, journal string) string {
	b.Helper()
	o := chp.ServerOptions{Endpoints: []string{fmt.Sprintf("tcp://%s:*", loopback.Own())}}
	if journal == "data" {
		log, err := durable.Open(b.TempDir(), durable.Options{})
		if err != nil {
			b.Fatal(err)
		}
		o.Log = log
	}
	s, err := chp.NewServer(o)
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Listen(b.Context()); err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background()) }()
	b.Cleanup(func() {
		_ = s.Close()
		if err := <-served; err != nil {
			b.Error(err)
		}
	})
	<-s.Ready()
	return s.Endpoints().Snapshot
}

func conditionsClient(b *testing.B, server string) *chp.Client {
	b.Helper()
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{server}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return c
}
