package queue

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
func batchOf(from *Conn, bodies ...string) Batch {
	var bytes []byte
	var spans []buf.Span
	for _, body := range bodies {
		start := len(bytes)
		bytes = append(bytes, wire(body)...)
		spans = append(spans, buf.Span{Start: uint32(start), End: uint32(len(bytes))})
	}
	chunk := buf.Get(len(bytes))
	copy(chunk.Data(), bytes)
	return Batch{chunk, spans, from, len(bytes)}
}

// numbers are the texts of from to, below to.
func numbers(from, to int) []string {
	var s []string
	for ; from < to; from++ {
		s = append(s, fmt.Sprint(from))
	}
	return s
}

func newInbox(limits HWM) *Inbox {
	in := &Inbox{}
	in.Init(limits, Unbounded, false, nil)
	return in
}

func newInqueue() *Inqueue {
	q := &Inqueue{}
	q.Init(false)
	return q
}

// alive is the end of a connection that lasts.
var alive = make(chan struct{})

// takeText takes one message, and returns its first frame.
func takeText(ctx context.Context, in *Inbox) (string, error) {
	_, m, err := in.Take(ctx, nil, nil)
	if err != nil {
		return "", err
	}
	return string(m[0]), nil
}

// takeBatch takes a batch in place of the one that b has.
func takeBatch(ctx context.Context, in *Inbox, b *Batch) error {
	b.Release()
	return in.TakeBatch(ctx, nil, b)
}

// bodies are the first frames of a batch.
func bodies(b *Batch) []string {
	var s []string
	for _, at := range b.Spans {
		m := Single{b.Chunk, at, b.From}
		body, _ := m.Wire().Next()
		s = append(s, string(body))
	}
	return s
}

// TestInboxFairQueue: peers are served in turn, message by message with Recv
// and batch by batch with RecvBatch.
func TestInboxFairQueue(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := newInbox(HWM{Messages: 1000, Bytes: 1 << 20})
	a, b := newInqueue(), newInqueue()
	for _, put := range []struct {
		q      *Inqueue
		bodies []string
	}{
		{a, []string{"a1", "a2", "a3"}}, {a, []string{"a4"}}, {b, []string{"b1", "b2"}}, {b, []string{"b3"}},
	} {
		batch := batchOf(nil, put.bodies...)
		in.Put(put.q, &batch, alive)
		if len(batch.Spans) != 0 || batch.Chunk != nil {
			t.Fatal("put did not take the batch over")
		}
	}
	var got []string
	for range 3 {
		m, err := takeText(ctx, in)
		must(t, err)
		got = append(got, m)
	}
	var batch Batch
	for a.size.Messages+b.size.Messages > 0 {
		must(t, takeBatch(ctx, in, &batch))
		got = append(got, fmt.Sprint(bodies(&batch)))
	}
	batch.Release()
	if want := "[a1 b1 a2 [b2] [a3] [b3] [a4]]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %v", got, want)
	}
	if a.size.Bytes != 0 || b.size.Bytes != 0 {
		t.Errorf("costs of %d and %d are left", a.size.Bytes, b.size.Bytes)
	}
}

// TestInboxHWM: exactly so many messages are queued, a batch beyond that is
// split, and the reader goes on once half of them are taken.
func TestInboxHWM(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := newInbox(HWM{Messages: 10, Bytes: 1 << 20})
	q := newInqueue()
	queued := make(chan bool)
	go func() {
		batch := batchOf(nil, numbers(0, 25)...)
		in.Put(q, &batch, alive)
		close(queued)
	}()
	pending := func() int {
		in.lock()
		defer in.mu.Unlock()
		if q.room.Waiters() == 0 {
			return -1
		}
		return q.size.Messages
	}
	next := 0
	take := func(n int) {
		for range n {
			m, err := takeText(ctx, in)
			must(t, err)
			if m != fmt.Sprint(next) {
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
	<-queued
	if q.size != (HWM{}) {
		t.Errorf("%+v are left", q.size)
	}
}

// TestInboxHWMBytes: a queue below its bound takes one batch more, of any size.
func TestInboxHWMBytes(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := newInbox(HWM{Messages: Unbounded, Bytes: 100})
	q := newInqueue()
	put := func(cost int) chan bool {
		done := make(chan bool)
		batch := batchOf(nil, "x")
		batch.Cost = cost
		go func() {
			in.Put(q, &batch, alive)
			close(done)
		}()
		return done
	}
	<-put(99)
	<-put(1000)
	third := put(1)
	eventually(t, "the third waits", func() bool { in.lock(); defer in.mu.Unlock(); return q.room.Waiters() > 0 })
	var b Batch
	must(t, takeBatch(ctx, in, &b))
	must(t, takeBatch(ctx, in, &b))
	<-third
	must(t, takeBatch(ctx, in, &b))
	b.Release()
}

// TestInboxMixed has readers and receivers of all kinds at once, over small
// queues: every message arrives once and in its peer's order.
func TestInboxMixed(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := newInbox(HWM{Messages: 7, Bytes: 1 << 20})
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
				in.Put(q, &batch, alive)
			}
		})
	}
	for range 3 {
		wg.Go(func() {
			for {
				m, err := takeText(done, in)
				if err != nil {
					return
				}
				got(m)
			}
		})
		wg.Go(func() {
			var b Batch
			defer b.Release()
			for takeBatch(done, in, &b) == nil {
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
// with any mixture of Recv and RecvBatch.
func TestInboxOrder(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := newInbox(HWM{Messages: 16, Bytes: 1 << 20})
	q := newInqueue()
	const n = 20_000
	go func() {
		for i := 0; i < n; i += 10 {
			batch := batchOf(nil, numbers(i, i+10)...)
			in.Put(q, &batch, alive)
		}
	}()
	rng := rand.New(rand.NewPCG(3, 3))
	var b Batch
	for next := 0; next < n; {
		var got []string
		if rng.IntN(2) == 0 {
			m, err := takeText(ctx, in)
			must(t, err)
			got = []string{m}
		} else {
			must(t, takeBatch(ctx, in, &b))
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
	in := newInbox(HWM{Messages: 1, Bytes: 1 << 20})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var b Batch
	if err := takeBatch(ctx, in, &b); !errors.Is(err, context.Canceled) {
		t.Errorf("RecvBatch with a context that has ended: %v", err)
	}
	if _, err := takeText(ctx, in); !errors.Is(err, context.Canceled) {
		t.Errorf("Recv with a context that has ended: %v", err)
	}

	// A connection's end lets its reader go, and so does the socket's.
	q := newInqueue()
	first := batchOf(nil, "1")
	in.Put(q, &first, alive)
	gone := make(chan struct{})
	close(gone)
	peer := &Conn{}
	second := batchOf(peer, "2")
	if in.Put(q, &second, gone); second.Chunk != nil || peer.Discarded.Load() != 1 || q.size.Messages != 1 {
		t.Errorf("a full queue of a connection that is gone takes a message; %d dropped", peer.Discarded.Load())
	}
	in.Close()
	third := batchOf(peer, "3")
	if in.Put(q, &third, alive); third.Chunk != nil || peer.Discarded.Load() != 2 || q.size.Messages != 1 {
		t.Errorf("a full queue of a closed socket takes a message; %d dropped", peer.Discarded.Load())
	}
	if err := takeBatch(context.Background(), in, &b); !errors.Is(err, ErrClosed) {
		t.Errorf("RecvBatch after close: %v", err)
	}
	in.Discard()
}

// TestInboxReferences: each chunk is released exactly once by its last holder, also when
// its messages are taken singly, in parts, or never.
func TestInboxReferences(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	in := newInbox(HWM{Messages: 3, Bytes: 1 << 20})
	q := newInqueue()
	var chunks []*buf.Chunk
	put := func(n int) {
		b := batchOf(nil, numbers(0, n)...)
		b.Chunk.Retain() // ours, to look at it
		chunks = append(chunks, b.Chunk)
		in.Put(q, &b, alive)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		put(8) // in parts
		put(2)
		put(1)
	}()
	for range 4 {
		_, err := takeText(ctx, in)
		must(t, err)
	}
	var b Batch
	for range 2 {
		must(t, takeBatch(ctx, in, &b))
	}
	b.Release()
	within(t, "put", func() {
		for {
			select {
			case <-done:
				return
			default:
				_, err := takeText(ctx, in)
				must(t, err)
			}
		}
	})
	in.Close()
	in.Discard()
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
	in := newInbox(HWM{Messages: 1, Bytes: 1})
	for range 100 {
		in.Recycle(make([]buf.Span, 0, spareSpans/4))
	}
	if len(in.spare.free) != 4 || in.spare.room != spareSpans {
		t.Errorf("%d slices with room for %d spans are kept", len(in.spare.free), in.spare.room)
	}
	for range 4 {
		if s := in.Spare(); cap(s) != spareSpans/4 {
			t.Errorf("cap %d", cap(s))
		}
	}
	if s := in.Spare(); s != nil || in.spare.room != 0 {
		t.Errorf("cap %d, room %d after all were taken", cap(s), in.spare.room)
	}
}

// TestNewcomersOfCutQueue: a reader that waits because of leftovers, and whose queue
// is cut meanwhile, does not keep the wake-up from another one.
func TestNewcomersOfCutQueue(t *testing.T) {
	t.Parallel()
	in := newInbox(HWM{Messages: 10, Bytes: 1000})
	var cut, other Inqueue
	cut.Init(true)
	other.Init(true)
	in.lock()
	in.leftovers.bytes = 1000
	in.mu.Unlock()
	done := make(chan bool, 2)
	gone := make(chan struct{})
	wait := func(q *Inqueue, waiters int) {
		go func() { done <- in.Settled(q, gone) }()
		eventually(t, "readers wait", func() bool {
			in.lock()
			defer in.mu.Unlock()
			return in.leftovers.newcomers.Waiters() == waiters
		})
	}
	wait(&cut, 1)
	in.Cut(&cut)
	wait(&other, 2)
	in.lock()
	in.leftovers.bytes = 0
	in.leftovers.newcomers.Wake()
	in.mu.Unlock()
	for range 2 {
		select {
		case <-done:
		case <-testContext(t).Done():
			t.Error("a reader still waits though there are no leftovers")
			close(gone)
			return
		}
	}
}
