package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermap/patterns/majordomo"
	"clustermap/patterns/titanic"
)

// titanicRate stores n requests of a size by the given number of clients at once, each
// of which waits for its acknowledgement, and returns the rate in requests a second and
// the number of flushes. With batch 1, each has a flush of its own.
func titanicRate(b *testing.B, clients, size, batch, n int) (rate float64, flushes uint64) {
	b.Helper()
	ctx := context.Background()
	broker, err := majordomo.NewBroker(majordomo.BrokerOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer broker.Close()
	endpoint, err := broker.Bind(ctx, "tcp://127.0.0.1:*")
	if err != nil {
		b.Fatal(err)
	}
	server, err := titanic.New(titanic.Options{Broker: endpoint, Dir: benchDir(b), MaxBatch: batch, Concurrency: clients})
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	client, err := titanic.NewClient(titanic.ClientOptions{Broker: endpoint})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	body := make([]byte, size)
	submit := func() {
		if _, err := client.Submit(ctx, "nobody's", body); err != nil {
			b.Error(err)
		}
	}
	submit() // the broker knows the service now
	before := server.Status().Flushes
	var left atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	start := time.Now()
	for range clients {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				submit()
			}
		})
	}
	all.Wait()
	return float64(n) / time.Since(start).Seconds(), server.Status().Flushes - before
}

// BenchmarkTitanic stores requests through a broker, with one flush for all that wait and with
// one flush each, in turn:
//
//	CLUSTERMAP_BENCH_DIR=/a/real/disk go test -run '^$' -bench Titanic -benchtime 10x ./bench
func BenchmarkTitanic(b *testing.B) {
	for _, size := range []int{200, 64 << 10} {
		for _, clients := range []int{1, 32, 256} {
			if size*clients > 4<<20 {
				continue // they would not fit below MaxBytes
			}
			b.Run(fmt.Sprintf("size=%d/clients=%d", size, clients), func(b *testing.B) {
				n := 20 * clients
				var group, single float64
				var flushes uint64
				for b.Loop() {
					rate, f := titanicRate(b, clients, size, 0, 4*n)
					group += rate
					flushes += f
					rate, _ = titanicRate(b, clients, size, 1, n)
					single += rate
				}
				b.ReportMetric(group/float64(b.N), "requests/s")
				b.ReportMetric(single/float64(b.N), "requests/s-flush-each")
				b.ReportMetric(group/single, "ratio")
				b.ReportMetric(float64(b.N)*float64(4*n)/float64(flushes), "requests/flush")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
