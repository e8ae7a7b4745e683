package sockets

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"clustermap/internal/buf"
)

// batchOf makes a batch of one-frame messages, as a reader does.
func batchOf(peer *Peer, bodies ...string) Batch {
	var bytes []byte
	var spans []Span
	for _, body := range bodies {
		start := len(bytes)
		bytes = append(bytes, wire(body)...)
		spans = append(spans, Span{Start: uint32(start), End: uint32(len(bytes))})
	}
	chunk := buf.Get(len(bytes))
	copy(chunk.Data(), bytes)
	return Batch{chunk: chunk, spans: spans, peer: peer, cost: len(bytes)}
}

// numbers are the texts of from to, below to.
func numbers(from, to int) []string {
	var s []string
	for ; from < to; from++ {
		s = append(s, fmt.Sprint(from))
	}
	return s
}

func newInbox(limits hwm) *inbox {
	in := &inbox{}
	in.init(limits)
	return in
}

func newInqueue() *inqueue {
	q := &inqueue{}
	q.init()
	return q
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

// TestInboxFairQueue: peers are served in turn, message by message with Recv
// and batch by batch with RecvBatch.
func TestInboxFairQueue(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := newInbox(hwm{1000, 1 << 20})
	a, b := newInqueue(), newInqueue()
	for _, put := range []struct {
		q      *inqueue
		bodies []string
	}{
		{a, []string{"a1", "a2", "a3"}}, {a, []string{"a4"}}, {b, []string{"b1", "b2"}}, {b, []string{"b3"}},
	} {
		batch := batchOf(nil, put.bodies...)
		if !in.push(put.q, &batch, nil) || batch.Len() != 0 || batch.chunk != nil {
			t.Fatal("push did not take the batch over")
		}
	}
	var got []string
	for range 3 {
		m, err := in.recv(ctx)
		must(t, err)
		got = append(got, texts(m)...)
	}
	var batch Batch
	for a.messages+b.messages > 0 {
		must(t, in.recvBatch(ctx, &batch))
		got = append(got, fmt.Sprint(bodies(&batch)))
	}
	batch.Release()
	if want := "[a1 b1 a2 [b2] [a3] [b3] [a4]]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %v", got, want)
	}
	if a.cost != 0 || b.cost != 0 {
		t.Errorf("costs of %d and %d are left", a.cost, b.cost)
	}
}

// TestInboxHWM: exactly so many messages are queued, a batch beyond that is
// split, and the reader goes on once half of them are taken.
func TestInboxHWM(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := newInbox(hwm{10, 1 << 20})
	q := newInqueue()
	pushed := make(chan bool)
	go func() {
		batch := batchOf(nil, numbers(0, 25)...)
		pushed <- in.push(q, &batch, nil)
	}()
	pending := func() int {
		in.mu.Lock()
		defer in.mu.Unlock()
		if !q.blocked {
			return -1
		}
		return q.messages
	}
	next := 0
	take := func(n int) {
		for range n {
			m, err := in.recv(ctx)
			must(t, err)
			if string(m[0]) != fmt.Sprint(next) {
				t.Fatalf("message %d is %q", next, m)
			}
			next++
		}
	}
	eventually(t, "ten messages are queued", func() bool { return pending() == 10 })
	take(5)
	if n := pending(); n != 5 {
		t.Fatalf("with half of them taken the reader already went on: %d", n)
	}
	take(1)
	eventually(t, "the queue is full again", func() bool { return pending() == 10 })
	take(25 - next)
	if !<-pushed {
		t.Fatal("push failed")
	}
	if q.messages != 0 || q.cost != 0 {
		t.Errorf("%d messages and a cost of %d are left", q.messages, q.cost)
	}
}

// TestInboxHWMBytes: a queue below its bound takes one batch more, whatever
// its size.
func TestInboxHWMBytes(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := newInbox(hwm{unbounded, 100})
	q := newInqueue()
	push := func(cost int) chan bool {
		done := make(chan bool, 1)
		batch := batchOf(nil, "x")
		batch.cost = cost
		go func() { done <- in.push(q, &batch, nil) }()
		return done
	}
	<-push(99)
	<-push(1000)
	third := push(1)
	eventually(t, "the third waits", func() bool { in.mu.Lock(); defer in.mu.Unlock(); return q.blocked })
	var b Batch
	must(t, in.recvBatch(ctx, &b))
	must(t, in.recvBatch(ctx, &b))
	if !<-third {
		t.Fatal("push failed")
	}
	must(t, in.recvBatch(ctx, &b))
	b.Release()
}

// TestInboxMixed has readers and receivers of all kinds at once, over small
// queues: every message arrives once and in its peer's order.
func TestInboxMixed(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := newInbox(hwm{7, 1 << 20})
	const peers, each = 4, 5000
	var mu sync.Mutex
	seen := map[string]bool{}
	left := peers * each
	done, cancel := context.WithCancel(ctx)
	got := func(bodies ...string) {
		mu.Lock()
		defer mu.Unlock()
		for _, b := range bodies {
			if seen[b] {
				t.Errorf("%s came twice", b)
			}
			seen[b] = true
			if left--; left == 0 {
				cancel()
			}
		}
	}
	var wg sync.WaitGroup
	for p := range peers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(p), 0))
			q := newInqueue()
			for n := 0; n < each; {
				var part []string
				for range min(1+rng.IntN(20), each-n) {
					part = append(part, fmt.Sprint(p, "/", n))
					n++
				}
				batch := batchOf(nil, part...)
				if !in.push(q, &batch, nil) {
					t.Error("push failed")
				}
			}
		})
	}
	for range 3 {
		wg.Go(func() {
			for {
				m, err := in.recv(done)
				if err != nil {
					return
				}
				got(texts(m)...)
			}
		})
		wg.Go(func() {
			var b Batch
			defer b.Release()
			for in.recvBatch(done, &b) == nil {
				got(bodies(&b)...)
			}
		})
	}
	wg.Wait()
	if left != 0 {
		t.Errorf("%d messages did not come", left)
	}
}

// TestInboxOrder: with one receiver, each peer's messages come in order,
// whatever mixture of Recv and RecvBatch takes them.
func TestInboxOrder(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := newInbox(hwm{16, 1 << 20})
	q := newInqueue()
	const n = 20_000
	go func() {
		for i := 0; i < n; i += 10 {
			batch := batchOf(nil, numbers(i, i+10)...)
			in.push(q, &batch, nil)
		}
	}()
	rng := rand.New(rand.NewPCG(3, 3))
	var b Batch
	for next := 0; next < n; {
		var got []string
		if rng.IntN(2) == 0 {
			m, err := in.recv(ctx)
			must(t, err)
			got = texts(m)
		} else {
			must(t, in.recvBatch(ctx, &b))
			got = bodies(&b)
		}
		for _, body := range got {
			if body != fmt.Sprint(next) {
				t.Fatalf("%s comes instead of %d", body, next)
			}
			next++
		}
	}
	b.Release()
}

func TestInboxEnds(t *testing.T) {
	t.Parallel()
	in := newInbox(hwm{1, 1 << 20})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var b Batch
	if err := in.recvBatch(ctx, &b); !errors.Is(err, context.Canceled) {
		t.Errorf("RecvBatch with a context that has ended: %v", err)
	}
	if _, err := in.recv(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Recv with a context that has ended: %v", err)
	}

	// A connection's end lets its reader go, and so does the socket's.
	q := newInqueue()
	first := batchOf(nil, "1")
	in.push(q, &first, nil)
	gone := make(chan struct{})
	close(gone)
	second := batchOf(nil, "2")
	if in.push(q, &second, gone) || second.Len() != 1 {
		t.Error("push to a full queue of a connection that is gone succeeded")
	}
	in.close()
	if in.push(q, &second, nil) {
		t.Error("push to a full queue of a closed socket succeeded")
	}
	second.Release()
	if err := in.recvBatch(context.Background(), &b); !errors.Is(err, ErrClosed) {
		t.Errorf("RecvBatch after close: %v", err)
	}
	in.discard()
}

// TestInboxReferences: each chunk is released exactly once by whoever has it
// last, also when its messages are taken singly, in parts, or never.
func TestInboxReferences(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := newInbox(hwm{3, 1 << 20})
	q := newInqueue()
	var chunks []*buf.Chunk
	push := func(n int) {
		b := batchOf(nil, numbers(0, n)...)
		b.chunk.Retain() // ours, to look at it
		chunks = append(chunks, b.chunk)
		if !in.push(q, &b, nil) {
			t.Error("push failed")
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		push(8) // in parts
		push(2)
		push(1)
	}()
	for range 4 {
		_, err := in.recv(ctx)
		must(t, err)
	}
	var b Batch
	for range 2 {
		must(t, in.recvBatch(ctx, &b))
	}
	b.Release()
	within(t, "push", func() {
		for {
			select {
			case <-done:
				return
			default:
				_, err := in.recv(ctx)
				must(t, err)
			}
		}
	})
	in.close()
	in.discard()
	for i, c := range chunks {
		if !c.Unique() {
			t.Errorf("chunk %d is still referred to", i)
		}
		c.Release()
	}
}

// TestInboxSpare: the span slices kept for reuse are bounded in memory.
func TestInboxSpare(t *testing.T) {
	t.Parallel()
	in := newInbox(hwm{1, 1})
	in.mu.Lock()
	for range 100 {
		in.recycle(make([]Span, 0, spareSpans/4))
	}
	in.mu.Unlock()
	if len(in.spare) != 4 || in.room != spareSpans {
		t.Errorf("%d slices with room for %d spans are kept", len(in.spare), in.room)
	}
	for range 4 {
		if s := in.spans(); cap(s) != spareSpans/4 {
			t.Errorf("cap %d", cap(s))
		}
	}
	if s := in.spans(); s != nil || in.room != 0 {
		t.Errorf("cap %d, room %d after all were taken", cap(s), in.room)
	}
}
