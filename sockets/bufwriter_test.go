package sockets

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strconv"
	"testing"
	"time"

	"clustermap/zmtp"
)

// TestWriter: messages of all sizes arrive as they were written, in order with those
// of Send after a Flush.
func TestWriter(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pull := bind(t, NewPull, Options{})
	push := open(t, NewPush, Options{})
	must(t, push.Connect(pull.LastEndpoint()))
	sizes := []int{0, 1, 2, 255, 256, 500, 501, 600, 5000, 100_000, 3, 508, 509, 510, 511, 512}
	for _, size := range []int{0, 1000, 100_000} {
		w := NewWriterSize(push, size)
		body := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, sizes[i%len(sizes)]) }
		for i := range 100 {
			must(t, w.Write(ctx, []byte(strconv.Itoa(i)), body(i)))
		}
		must(t, w.Flush(ctx))
		must(t, w.Flush(ctx))
		if n, size := w.Buffered(); n != 0 || size != 0 {
			t.Errorf("%d messages of %d bytes are left", n, size)
		}
		must(t, push.Send(ctx, []byte("end")))
		for i := range 100 {
			m, err := pull.Recv(ctx)
			must(t, err)
			if len(m) != 2 || string(m[0]) != strconv.Itoa(i) || !bytes.Equal(m[1], body(i)) {
				t.Fatalf("message %d: %d frames, %q", i, len(m), m[0])
			}
		}
		if m, err := pull.Recv(ctx); err != nil || string(m[0]) != "end" {
			t.Fatalf("%q, %v", m, err)
		}
	}
}

// TestWriterBuffers: nothing is sent before the buffer is full, has SendHWM messages, or
// is flushed.
func TestWriterBuffers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pull := bind(t, NewPull, Options{})
	push := open(t, NewPush, Options{SendHWM: 20})
	must(t, push.Connect(pull.LastEndpoint()))
	w := NewWriter(push)
	for i := 1; i <= 20; i++ {
		must(t, w.Write(ctx, []byte("m")))
		if n, size := w.Buffered(); n != i || size != 3*i {
			t.Fatalf("%d messages of %d bytes", n, size)
		}
	}
	if s := push.Peers()[0]; s.QueuedMessages != 0 || s.MessagesOut != 0 {
		t.Errorf("%+v", s)
	}
	must(t, w.Write(ctx, []byte("m")))
	if n, _ := w.Buffered(); n != 1 {
		t.Errorf("%d messages are buffered", n)
	}
	for range 20 {
		_, err := pull.Recv(ctx)
		must(t, err)
	}
	small := NewWriterSize(push, 512)
	body := make([]byte, 100)
	for range 5 {
		must(t, small.Write(ctx, body))
	}
	if n, size := small.Buffered(); n != 5 || size != 5*zmtp.FrameSize(100) {
		t.Errorf("%d messages of %d bytes", n, size)
	}
	must(t, small.Write(ctx, body))
	if n, _ := small.Buffered(); n != 1 {
		t.Errorf("%d messages are buffered", n)
	}
}

// TestWriterErrors: an error stays until Resume or Reset, and the messages buffered then
// are sent after Resume, once.
func TestWriterErrors(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	push := open(t, NewPush, Options{MaxMessageSize: 10_000})
	w := NewWriterSize(push, 512)
	must(t, w.Write(ctx, []byte("first")))
	if err := w.Write(ctx); !errors.Is(err, ErrNoFrames) {
		t.Error(err)
	}
	if err := w.Write(ctx, make([]byte, 20_000)); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	must(t, w.Write(ctx, []byte("second"))) // those two do not stay
	soon, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := w.Write(soon, make([]byte, 600)); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := w.Write(ctx, []byte("refused")); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := w.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if n, _ := w.Buffered(); n != 2 {
		t.Errorf("%d messages are buffered", n)
	}
	pull := bind(t, NewPull, Options{})
	must(t, push.Connect(pull.LastEndpoint()))
	w.Resume()
	must(t, w.Write(ctx, []byte("third")))
	must(t, w.Flush(ctx))
	for _, want := range []string{"first", "second", "third"} {
		if m, err := pull.Recv(ctx); err != nil || string(m[0]) != want {
			t.Errorf("%q, %v, want %q", m, err, want)
		}
	}
	must(t, w.Write(ctx, []byte("dropped")))
	must(t, push.Close())
	if err := w.Flush(ctx); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	w.Reset()
	if n, size := w.Buffered(); n != 0 || size != 0 {
		t.Errorf("%d messages of %d bytes after Reset", n, size)
	}
	must(t, w.Flush(ctx))
}

// TestWriterKinds: a Writer serves each type, and a publisher's subscribers get the
// messages of their topics.
func TestWriterKinds(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, s := range []interface {
		WireSender
		WaitSubscribers(context.Context, string, int) error
	}{open(t, NewPub, Options{FullPolicy: PolicyBlock}), open(t, NewXPub, Options{FullPolicy: PolicyBlock})} {
		must(t, s.Bind(ctx, anyPort))
		all := subscribed(t, Options{}, s.LastEndpoint(), "")
		some := subscribed(t, Options{}, s.LastEndpoint(), "9", "19")
		must(t, s.WaitSubscribers(ctx, "9", 2))
		w := NewWriterSize(s, 1000)
		go func() {
			for i := range 2000 {
				must(t, w.Write(ctx, []byte(strconv.Itoa(i)), []byte("body")))
			}
			must(t, w.Flush(ctx))
		}()
		for i := range 2000 {
			name := strconv.Itoa(i)
			if m, err := all.Recv(ctx); err != nil || string(m[0]) != name {
				t.Fatalf("%q, %v, want %s", m, err, name)
			}
			if name[0] != '9' && (len(name) < 2 || name[:2] != "19") {
				continue
			}
			if m, err := some.Recv(ctx); err != nil || string(m[0]) != name {
				t.Fatalf("%q, %v, want %s", m, err, name)
			}
		}
	}
	dealer := bind(t, NewDealer, Options{})
	pair := bind(t, NewPair, Options{})
	for _, s := range []WireSender{dealer, pair} {
		var other interface {
			Socket
			Recv(context.Context) (Message, error)
		} = open(t, NewDealer, Options{})
		if s == WireSender(pair) {
			other = open(t, NewPair, Options{})
		}
		must(t, other.Connect(s.LastEndpoint()))
		w := NewWriter(s)
		must(t, w.Write(ctx, []byte("a"), []byte("b")))
		must(t, w.Flush(ctx))
		if m, err := other.Recv(ctx); err != nil || len(m) != 2 || string(m[1]) != "b" {
			t.Errorf("%q, %v", m, err)
		}
	}
}

// TestAllocWriter: neither Write nor Flush allocates.
func TestAllocWriter(t *testing.T) {
	ctx := testContext(t)
	pull := bind(t, NewPull, Options{RecvHWM: -1})
	push := open(t, NewPush, Options{SendHWM: -1})
	must(t, push.Connect(pull.LastEndpoint()))
	pub := bind(t, NewPub, Options{SendHWM: -1})
	sub := subscribed(t, Options{RecvHWM: -1}, pub.LastEndpoint(), "")
	var b Batch
	defer b.Release()
	for _, c := range []struct {
		w    *Writer
		recv func(*Batch) error
	}{
		{NewWriterSize(push, 8<<10), func(b *Batch) error { return pull.RecvBatch(ctx, b) }},
		{NewWriterSize(pub, 8<<10), func(b *Batch) error { return sub.RecvBatch(ctx, b) }},
	} {
		for _, n := range []int{1, 200} {
			noAllocs(t, "Writer", func() {
				for range n {
					must(t, c.w.Write(ctx, payload...))
				}
				must(t, c.w.Flush(ctx))
				takeAll(t, c.recv, &b, n)
			})
		}
	}
}

// BenchmarkWriter sends messages with a Writer and with Send in turn, and reports how
// many times as fast the Writer is.
func BenchmarkWriter(b *testing.B) {
	body := make([]byte, 64)
	run := func(b *testing.B, s WireSender, send func(context.Context, ...[]byte) error, recv func(context.Context, *Batch) error) {
		ctx := context.Background()
		w := NewWriter(s)
		received := make(chan int, 1)
		// measure sends n messages and waits until all have arrived.
		measure := func(n int, send func(context.Context, ...[]byte) error) time.Duration {
			go func() {
				var batch Batch
				defer batch.Release()
				got := 0
				for got < n && recv(ctx, &batch) == nil {
					got += batch.Len()
				}
				received <- got
			}()
			begin := time.Now()
			for range n {
				must(b, send(ctx, body))
			}
			must(b, w.Flush(ctx))
			if got := <-received; got != n {
				b.Fatalf("%d of %d messages", got, n)
			}
			return time.Since(begin)
		}
		const portion = 50_000
		var written, sent time.Duration
		messages := 0
		for b.Loop() {
			written += measure(portion, w.Write)
			sent += measure(portion, send)
			messages += portion
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(written.Nanoseconds())/float64(messages), "ns/Write")
		b.ReportMetric(float64(sent.Nanoseconds())/float64(messages), "ns/Send")
		b.ReportMetric(float64(sent)/float64(written), "Send/Write")
	}
	b.Run("PUSH", func(b *testing.B) {
		pull := bind(b, NewPull, Options{})
		push := open(b, NewPush, Options{})
		must(b, push.Connect(pull.LastEndpoint()))
		run(b, push, push.Send, pull.RecvBatch)
	})
	b.Run("PUB", func(b *testing.B) {
		pub := bind(b, NewPub, Options{FullPolicy: PolicyBlock})
		sub := subscribed(b, Options{}, pub.LastEndpoint(), "")
		run(b, pub, pub.Send, sub.RecvBatch)
	})
}

// TestWriterMemory: a queue that is filled by Flush calls with little in the buffer does
// not keep a buffer for each of them.
func TestWriterMemory(t *testing.T) {
	ctx := testContext(t)
	push := open(t, NewPush, Options{Linger: LingerNone})
	must(t, push.Connect("inproc://nobody"))
	const size = 1 << 20
	w := NewWriterSize(push, size)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 100 {
		must(t, w.Write(ctx, make([]byte, 5<<10)))
		must(t, w.Flush(ctx))
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 20*size {
		t.Errorf("100 messages of 5 KiB take %d bytes", n)
	}
	must(t, push.Close())
}
