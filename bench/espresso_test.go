package bench

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"clustermap/patterns/espresso"
	"clustermap/sockets"
)

// flow is a publisher, something that forwards, and a subscriber to everything.
type flow struct {
	tb      testing.TB
	ctx     context.Context
	pub     *sockets.Pub
	sub     *sockets.Sub
	message []byte
	batch   sockets.Batch
}

// newFlow runs forward between an XSUB and an XPUB on loopback TCP until the benchmark
// ends.
func newFlow(tb testing.TB, size int, forward func(ctx context.Context, front, back sockets.Socket) error) *flow {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	o := sockets.Options{FullPolicy: sockets.Block, Linger: -1}
	front, e1 := sockets.NewXSub(o)
	back, e2 := sockets.NewXPub(o)
	pub, e3 := sockets.NewPub(o)
	sub, e4 := sockets.NewSub(o)
	for _, err := range []error{e1, e2, e3, e4, front.Bind(ctx, "tcp://127.0.0.1:*"), back.Bind(ctx, "tcp://127.0.0.1:*"),
		pub.Connect(front.LastEndpoint()), sub.Connect(back.LastEndpoint()), sub.Subscribe("")} {
		if err != nil {
			tb.Fatal(err)
		}
	}
	ended := make(chan struct{})
	go func() {
		_ = forward(ctx, front, back)
		close(ended)
	}()
	tb.Cleanup(func() {
		cancel()
		<-ended
		for _, s := range []sockets.Socket{front, back, pub, sub} {
			s.Close()
		}
	})
	if err := pub.WaitSubscribers(ctx, nil, 1); err != nil {
		tb.Fatal(err)
	}
	return &flow{tb: tb, ctx: ctx, pub: pub, sub: sub, message: make([]byte, size)}
}

// pass sends n messages and waits until all have arrived.
func (f *flow) pass(n int) {
	sent := make(chan error, 1)
	go func() {
		for range n {
			if err := f.pub.Send(f.ctx, f.message); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for got := 0; got < n; got += f.batch.Len() {
		if err := f.sub.RecvBatch(f.ctx, &f.batch); err != nil {
			f.tb.Fatal(err)
		}
	}
	f.batch.Release()
	if err := <-sent; err != nil {
		f.tb.Fatal(err)
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
			plain := newFlow(b, 100, func(ctx context.Context, front, back sockets.Socket) error {
				return sockets.Proxy(ctx, front, back)
			})
			var lost func() uint64
			tapped := newFlow(b, 100, func(ctx context.Context, front, back sockets.Socket) error {
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
			plain.pass(n)
			tapped.pass(n)
			var proxies, taps, ratios []float64
			b.ResetTimer()
			for range rounds {
				t0 := time.Now()
				plain.pass(n)
				t1 := time.Now()
				tapped.pass(n)
				t2 := time.Now()
				proxies = append(proxies, float64(n)/t1.Sub(t0).Seconds())
				taps = append(taps, float64(n)/t2.Sub(t1).Seconds())
				ratios = append(ratios, t1.Sub(t0).Seconds()/t2.Sub(t1).Seconds())
			}
			b.StopTimer()
			median := func(x []float64) float64 { slices.Sort(x); return x[len(x)/2] }
			b.ReportMetric(median(proxies), "proxy-msg/s")
			b.ReportMetric(median(taps), "tap-msg/s")
			b.ReportMetric(median(ratios), "ratio")
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
	f := newFlow(b, 100, func(ctx context.Context, front, back sockets.Socket) error {
		tap, err := espresso.NewTap(front, back, espresso.Options{Queue: 1 << 30})
		if err != nil {
			return err
		}
		w, err := espresso.NewWriter(file, tap.Ends())
		if err != nil {
			return err
		}
		o := tap.Observe(espresso.Filter{From: espresso.FromFrontend})
		recorded := make(chan error, 1)
		go func() { recorded <- o.Record(context.Background(), w) }()
		_ = tap.Run(ctx)
		return <-recorded
	})
	const messages = 100_000
	f.pass(messages)
	size := int64(0)
	for whole := int64(messages) * (100 + 2 + 17); size < whole; time.Sleep(time.Millisecond) {
		info, err := os.Stat(name)
		if err != nil {
			b.Fatal(err)
		}
		size = info.Size()
	}
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
