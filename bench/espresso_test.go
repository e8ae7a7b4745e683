package bench

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"clustermap/bench/internal/flow"
	"clustermap/internal/bench/figures"
	"clustermap/internal/testenv"
	"clustermap/patterns/espresso"
	"clustermap/sockets"
)

// forwarded is a flow through an XSUB and an XPUB on loopback TCP, between which
// forward runs until the benchmark ends. It passes n messages of 100 bytes.
func forwarded(tb testing.TB, forward func(ctx context.Context, front, back sockets.Socket) error) (pass func(n int)) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	o := sockets.Options{FullPolicy: sockets.PolicyBlock, Linger: sockets.LingerNone}
	front, e1 := sockets.NewXSub(sockets.Options{Linger: sockets.LingerNone})
	back, e2 := sockets.NewXPub(o)
	for _, err := range []error{e1, e2, front.Bind(ctx, "tcp://127.0.0.1:*"), back.Bind(ctx, "tcp://127.0.0.1:*")} {
		if err != nil {
			tb.Fatal(err)
		}
	}
	ended := make(chan struct{})
	go func() {
		_ = forward(ctx, front, back)
		close(ended)
	}()
	f, err := flow.New(ctx, 100, front.LastEndpoint(), back.LastEndpoint())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		cancel()
		<-ended
		f.Close()
		front.Close()
		back.Close()
	})
	return func(n int) {
		if err := f.Pass(ctx, n); err != nil {
			tb.Fatal(err)
		}
	}
}

// BenchmarkTap passes messages of 100 bytes through a plain proxy and through a tap in
// turn: without observers, with one that reads, with one that filters everything out,
// with one that records to a file, and with one that reads nothing.
//
// ns/op is that of both together. proxy-msg/s and tap-msg/s are the medians of the
// turns, and ratio is the median of tap/proxy.
func BenchmarkTap(b *testing.B) {
	read := func(ctx context.Context, o *espresso.Observer) {
		var e espresso.Event
		for o.Next(ctx, &e) == nil {
		}
	}
	for _, c := range []struct {
		name    string
		filter  espresso.Filter
		observe func(ctx context.Context, o *espresso.Observer) // nil for none
	}{
		{name: "unobserved"},
		{name: "observed", observe: read},
		{name: "filtered", observe: read, filter: espresso.Filter{Topics: []string{"topic"}}},
		{name: "recorded", observe: func(ctx context.Context, o *espresso.Observer) {
			file, err := os.Create(filepath.Join(b.TempDir(), "flow"))
			if err != nil {
				b.Error(err)
				return
			}
			defer file.Close()
			w, err := espresso.NewWriter(file, espresso.Ends{})
			if err == nil {
				err = o.Record(ctx, w)
			}
			if err != nil && ctx.Err() == nil {
				b.Error(err)
			}
		}},
		{name: "stalled", observe: func(ctx context.Context, o *espresso.Observer) { <-ctx.Done() }},
	} {
		b.Run(c.name, func(b *testing.B) {
			plain := forwarded(b, func(ctx context.Context, front, back sockets.Socket) error {
				return sockets.Proxy(ctx, front, back)
			})
			var lost func() uint64
			tapped := forwarded(b, func(ctx context.Context, front, back sockets.Socket) error {
				tap, err := espresso.NewTap(front, back, espresso.Options{})
				if err != nil {
					return err
				}
				if c.observe != nil {
					o := tap.Observe(c.filter)
					lost = func() uint64 { return o.Stats().Lost }
					done := make(chan struct{})
					go func() {
						c.observe(ctx, o)
						close(done)
					}()
					defer func() { <-done }()
				}
				return tap.Run(ctx)
			})
			const rounds = 9
			n := max(b.N/rounds/2, 1)
			plain(n)
			tapped(n)
			var proxies, taps, ratios []float64
			b.ResetTimer()
			for range rounds {
				t0 := time.Now()
				plain(n)
				t1 := time.Now()
				tapped(n)
				t2 := time.Now()
				proxies = append(proxies, float64(n)/t1.Sub(t0).Seconds())
				taps = append(taps, float64(n)/t2.Sub(t1).Seconds())
				ratios = append(ratios, t1.Sub(t0).Seconds()/t2.Sub(t1).Seconds())
			}
			b.StopTimer()
			b.ReportMetric(figures.Median(proxies), "proxy-msg/s")
			b.ReportMetric(figures.Median(taps), "tap-msg/s")
			b.ReportMetric(figures.Median(ratios), "ratio")
			if lost != nil {
				b.ReportMetric(float64(lost()), "lost")
			}
		})
	}
}

// BenchmarkReadRecording reads a recording of messages of 100 bytes.
func BenchmarkReadRecording(b *testing.B) {
	name := filepath.Join(b.TempDir(), "flow")
	file, err := os.Create(name)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	pass := forwarded(b, func(ctx context.Context, front, back sockets.Socket) error {
		tap, err := espresso.NewTap(front, back, espresso.Options{Queue: 1 << 30})
		if err != nil {
			return err
		}
		w, err := espresso.NewWriter(file, tap.Ends())
		if err != nil {
			return err
		}
		o := tap.Observe(espresso.Filter{From: espresso.DirectionFromFrontend})
		recorded := make(chan error, 1)
		go func() { recorded <- o.Record(context.Background(), w) }()
		_ = tap.Run(ctx)
		return <-recorded
	})
	const messages = 100_000
	pass(messages)
	testenv.Eventually(b, "all is recorded", func() bool {
		info, err := os.Stat(name)
		if err != nil {
			b.Fatal(err)
		}
		return info.Size() >= messages*(100+2+17)
	})
	b.SetBytes(100 + 2 + 17)
	b.ResetTimer()
	for n := 0; n < b.N; {
		from, err := os.Open(name)
		if err != nil {
			b.Fatal(err)
		}
		r, err := espresso.NewReader(bufio.NewReaderSize(from, 256<<10))
		if err != nil {
			b.Fatal(err)
		}
		var e espresso.Event
		for ; n < b.N && r.Next(&e) == nil; n++ {
		}
		from.Close()
	}
}
