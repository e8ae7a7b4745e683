//go:build unix

package bench

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/bench/figures"
	"clustermap/internal/bench/worker"
	"clustermap/internal/loopback"
	"clustermap/sockets"
)

var (
	joinKeys   = flag.Int("join.keys", 100_000, "keys of BenchmarkJoin, of 13 bytes with values of 32")
	joinPasses = flag.Int("join.passes", 3, "how often BenchmarkJoin then overwrites every key")
)

// joined is what the replica of BenchmarkJoin says.
type joined struct {
	Took time.Duration
	Keys int
}

// runJoiner fetches the map.
func runJoiner(endpoint string, say func(any)) error {
	begun := time.Now()
	client, err := chp.NewClient(chp.ClientOptions{Servers: []string{endpoint}})
	if err == nil {
		err = client.WaitActive(context.Background())
	}
	if err == nil {
		say(joined{time.Since(begun), client.Len()})
	}
	return err
}

// BenchmarkJoin loads a map into a server that is a process of its own, and measures
//
//   - its resident memory for each key: that of the whole process, of which some 26 MB do
//     not depend on the keys;
//   - the time in which a replica, a third process, has the map: idle-s while there are no
//     updates, and busy-s while this process sends as many as it can;
//   - how many updates the server applies meanwhile, beside how many it does without the
//     replica (updates-busy/normal);
//   - its resident memory after every key was overwritten, in a random order each time,
//     and its ratio to that before (overwritten/loaded).
//
// All but the memory are medians of five. For figures:
//
//	go test -run '^$' -bench '^BenchmarkJoin$' -benchtime 1x ./bench -join.keys 1000000 -join.passes 100
func BenchmarkJoin(b *testing.B) {
	command := buildCommand(b)
	for b.Loop() {
		joinOnce(b, command)
	}
	b.ReportMetric(0, "ns/op")
}

func joinOnce(b *testing.B, command string) {
	host := loopback.Own()
	server := &process{tb: b, args: []string{command, "serve", "--host", host}, endpoint: "tcp://" + host + ":5556"}
	server.start()
	defer server.kill()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	const own = "/end"
	client, err := chp.NewClient(chp.ClientOptions{Servers: []string{server.endpoint}, Subtrees: []string{own}})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	if err := client.WaitActive(ctx); err != nil {
		b.Fatal(err)
	}
	keys := make([]string, *joinKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("/k/%010d", i)
	}
	pass := func(ctx context.Context) error {
		rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		value := make([]byte, 32)
		for _, key := range keys {
			value[0]++
			if err := client.Set(ctx, key, value); err != nil {
				return err
			}
		}
		return nil
	}
	settle := func() {
		if _, err := client.SetSync(ctx, own, []byte("x")); err != nil {
			b.Fatal(err)
		}
	}
	if err := pass(ctx); err != nil {
		b.Fatal(err)
	}
	settle()
	loaded := server.memory("VmRSS")

	var idle, busy, ratios []float64
	for range 5 {
		idle = append(idle, fetchMap(b, server.endpoint))
	}
	for range 5 {
		stop := underLoad(ctx, b, pass)
		normal := rateOf(ctx, b, server.endpoint, func() { time.Sleep(time.Second) })
		meanwhile := rateOf(ctx, b, server.endpoint, func() { busy = append(busy, fetchMap(b, server.endpoint)) })
		stop()
		ratios = append(ratios, meanwhile/normal)
	}
	for range *joinPasses {
		if err := pass(ctx); err != nil {
			b.Fatal(err)
		}
	}
	settle()
	after := server.memory("VmRSS")
	b.Logf("idle %.3f s, busy %.3f s, updates busy/normal %.2f; %d bytes resident, then %d", idle, busy, ratios, loaded, after)
	b.ReportMetric(float64(loaded)/float64(len(keys)), "RSS-B/key")
	b.ReportMetric(float64(after)/float64(loaded), "overwritten/loaded")
	b.ReportMetric(figures.Median(idle), "idle-s")
	b.ReportMetric(figures.Median(busy), "busy-s")
	b.ReportMetric(figures.Median(ratios), "updates-busy/normal")
}

// fetchMap has a process fetch the map, and returns the seconds that it took.
func fetchMap(b *testing.B, endpoint string) float64 {
	b.Helper()
	w, err := worker.Start(b.Context(), "replica", endpoint)
	if err != nil {
		b.Fatal(err)
	}
	defer w.Stop()
	var r joined
	if err := w.Next(&r); err != nil || r.Keys < *joinKeys {
		b.Fatalf("%v: %d keys", err, r.Keys)
	}
	return r.Took.Seconds()
}

// underLoad calls pass again and again until stop is called.
func underLoad(ctx context.Context, b *testing.B, pass func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			if err := pass(ctx); err != nil && ctx.Err() == nil {
				b.Error(err)
				return
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// rateOf returns how many updates a second the server applies while f runs.
func rateOf(ctx context.Context, b *testing.B, endpoint string, f func()) float64 {
	b.Helper()
	sequence := func() (int64, time.Time) {
		status, err := chp.ServerStatus(ctx, endpoint, sockets.Security{})
		if err != nil {
			b.Fatal(err)
		}
		return status.Sequence, time.Now()
	}
	first, begun := sequence()
	f()
	last, ended := sequence()
	return float64(last-first) / ended.Sub(begun).Seconds()
}
