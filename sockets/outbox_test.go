package sockets

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"clustermap/zmtp"
)

// lender counts the references on lent bytes.
type lender struct {
	refs     atomic.Int64
	retained atomic.Int64
	free     chan struct{} // gets a token when the last reference goes; capacity 1
}

func newLender() *lender { return &lender{free: make(chan struct{}, 1)} }

func (l *lender) Retain() {
	l.refs.Add(1)
	l.retained.Add(1)
}

func (l *lender) Release() {
	switch n := l.refs.Add(-1); {
	case n < 0:
		panic("released more often than retained")
	case n == 0:
		select {
		case l.free <- struct{}{}:
		default:
		}
	}
}

func newOutbox(limits hwm) *outbox {
	o := &outbox{}
	o.init(limits)
	return o
}

func (o *outbox) put(frames ...string) verdict {
	parts := make([][]byte, len(frames))
	for i, f := range frames {
		parts[i] = []byte(f)
	}
	if len(parts) == 1 {
		return o.offerOne(nil, parts[0])
	}
	return o.offer(nil, nil, parts)
}

// takenFrom takes what is queued, without waiting, and returns its bytes.
func takenFrom(t *testing.T, o *outbox) (data []byte, w *writer) {
	t.Helper()
	w = &writer{pipe: &pipe{}}
	if !o.take(&w.load, nil, func() {}) {
		t.Fatal("take failed")
	}
	w.gather()
	return bytes.Join(w.bufs, nil), w
}

// TestOutboxStages: what is copied goes to stages of a bounded size, but for
// messages that are larger, and comes out in its order; each stage is free when
// all of it is released.
func TestOutboxStages(t *testing.T) {
	t.Parallel()
	o := newOutbox(hwm{unbounded, unbounded})
	l := newLender()
	var want []byte
	put := func(size int) {
		body := bytes.Repeat([]byte{byte('a' + len(want)%26)}, size)
		if o.put(string(body)) != accepted {
			t.Fatal("not accepted")
		}
		want = append(want, wire(string(body))...)
	}
	lent := wire(string(make([]byte, lendFrom)))
	for range 3 {
		put(100)
		o.offerWire(nil, lent, 1, l)
		want = append(want, lent...)
		put(fullStage / 2)
		put(fullStage / 2)
		put(3 * fullStage)
		put(0)
	}
	batch := [][]byte{make([]byte, fullStage/2), make([]byte, fullStage/3), make([]byte, fullStage/3), nil, make([]byte, 2*fullStage), nil}
	if n := o.offerEach(nil, batch); n != len(batch) {
		t.Fatalf("%d of %d accepted", n, len(batch))
	}
	for _, b := range batch {
		want = append(want, wire(string(b))...)
	}
	got, w := takenFrom(t, o)
	if !bytes.Equal(got, want) {
		t.Error("something else comes out than went in")
	}
	if w.queue.bytes() != len(want) || w.queue.messages != 3*6+len(batch) {
		t.Errorf("counts %d messages of %d bytes, want %d of %d", w.queue.messages, w.queue.bytes(), 3*6+len(batch), len(want))
	}
	seen := map[*stage]int{}
	for _, item := range w.queue.items {
		if s, ok := item.owner.(*stage); ok {
			seen[s] += len(item.wire)
			if len(s.bytes) > fullStage && len(s.bytes) != 3*fullStage+9 && len(s.bytes) != 2*fullStage+9 {
				t.Errorf("a stage of %d bytes", len(s.bytes))
			}
		}
	}
	if s := w.queue.stage; s != nil {
		seen[s] += len(w.queue.staged())
	}
	for s, size := range seen {
		if size != len(s.bytes) {
			t.Errorf("%d of a stage's %d bytes are queued", size, len(s.bytes))
		}
	}
	if len(seen) < 10 {
		t.Errorf("%d stages are full", len(seen))
	}
	w.release()
	if l.refs.Load() != 0 {
		t.Error("what was lent is not given back")
	}
	for s := range seen {
		if s.refs.Load() > 1 { // 1 if somebody else uses it by now
			t.Errorf("a stage has %d holders left", s.refs.Load())
		}
	}
}

// TestOutboxHWM: exactly so many messages are taken in, and after the writer
// has taken them, as many again.
func TestOutboxHWM(t *testing.T) {
	t.Parallel()
	o := newOutbox(hwm{3, 1 << 20})
	w := &writer{}
	for range 3 {
		for i := range 3 {
			if v := o.put(fmt.Sprint(i)); v != accepted {
				t.Fatalf("message %d: %v", i, v)
			}
		}
		if v := o.put("3"); v != isFull || o.would() != isFull {
			t.Fatalf("message 3: %v", v)
		}
		roomy := 0
		o.take(&w.load, nil, func() { roomy++ })
		if w.queue.messages != 3 || roomy != 1 || o.would() != accepted {
			t.Fatalf("%d messages taken, roomy was called %d times", w.queue.messages, roomy)
		}
		w.release()
	}
}

// TestOutboxHWMBytes: below the bound one more is taken, whatever its size.
func TestOutboxHWMBytes(t *testing.T) {
	t.Parallel()
	o := newOutbox(hwm{unbounded, 100})
	for _, c := range []struct {
		size int
		want verdict
	}{{97, accepted}, {5000, accepted}, {0, isFull}} {
		if v := o.put(string(make([]byte, c.size))); v != c.want {
			t.Errorf("%d bytes: %v, want %v", c.size, v, c.want)
		}
	}
	if o.queue.bytes() != 99+5000+9 {
		t.Errorf("%d bytes are counted", o.queue.bytes())
	}
	o = newOutbox(hwm{unbounded, 1})
	if o.put(string(make([]byte, 1000))) != accepted || o.put("") != isFull {
		t.Error("an empty queue must take one message of any size")
	}
}

// TestOutboxOrder: copied and lent bytes come out in the order they went in.
func TestOutboxOrder(t *testing.T) {
	t.Parallel()
	o := newOutbox(hwm{unbounded, unbounded})
	l := newLender()
	big := wire(string(bytes.Repeat([]byte("b"), lendFrom)))
	runs := append(wire("skipped"), wire("run")...)
	o.put("1", "2")
	o.offerWire(nil, big, 1, l)
	o.offerWire(nil, wire("small"), 1, l)
	o.offerWire(nil, big, 1, nil) // without an owner all is copied
	o.offerRuns(runs, []run{{len(wire("skipped")), len(runs)}}, 1)
	o.offerWire(nil, big, 1, l)
	o.put("end")
	want := bytes.Join([][]byte{wire("1", "2"), big, wire("small"), big, wire("run"), big, wire("end")}, nil)
	if o.queue.messages != 7 || o.queue.bytes() != len(want) {
		t.Errorf("counts %d messages, %d bytes", o.queue.messages, o.queue.bytes())
	}
	if l.refs.Load() != 2 {
		t.Errorf("lent %d times, want 2", l.refs.Load())
	}
	got, w := takenFrom(t, o)
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes come out, want %d", len(got), len(want))
	}
	if l.refs.Load() != 2 {
		t.Error("released before written")
	}
	w.release()
	if l.refs.Load() != 0 {
		t.Errorf("%d references are left", l.refs.Load())
	}
}

// TestOutboxBreaks: however often connections break before anything is
// written, the messages stay in order, and bounded in number.
func TestOutboxBreaks(t *testing.T) {
	t.Parallel()
	const limit = 10
	o := newOutbox(hwm{limit, unbounded})
	var sent, got []string
	for round := range 50 {
		_, w := takenAfter(t, o, func() {
			for o.put(fmt.Sprint(len(sent))) == accepted {
				sent = append(sent, fmt.Sprint(len(sent)))
			}
		})
		for o.put(fmt.Sprint(len(sent))) == accepted {
			sent = append(sent, fmt.Sprint(len(sent)))
		}
		if n := o.queue.messages + w.queue.messages; n > 2*limit {
			t.Fatalf("round %d: %d messages are held", round, n)
		}
		w.pipe.out.init(hwm{unbounded, unbounded})
		back, messages := w.remaining()
		w.release()
		o.putBack(back, messages)
	}
	for o.queue.messages > 0 {
		data, w := takenFrom(t, o)
		for rest := data; len(rest) > 0; {
			var body []byte
			body, after := zmtp.Message(rest).Next()
			got, rest = append(got, string(body)), after
		}
		w.release()
	}
	if fmt.Sprint(got) != fmt.Sprint(sent) || len(sent) != 2*limit {
		t.Errorf("sent %v\ngot %v", sent, got)
	}
	gone := make(chan struct{})
	close(gone)
	w := &writer{}
	o.take(&w.load, gone, func() {})
	if o.put("after") != accepted {
		t.Error("there is no room after all was written")
	}
}

// takenAfter fills the outbox and then takes.
func takenAfter(t *testing.T, o *outbox, fill func()) ([]byte, *writer) {
	t.Helper()
	fill()
	return takenFrom(t, o)
}

// TestOutboxFullOfBack: a sender that waits behind messages that were put back
// is woken when these are written, though nothing else is queued.
func TestOutboxFullOfBack(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := newOutbox(hwm{1, unbounded})
	o.put("1")
	data, w := takenFrom(t, o)
	w.release()
	o.putBack(data, 1)
	if v := o.put("2"); v != isFull {
		t.Fatalf("with the bound reached: %v", v)
	}
	gone := make(chan struct{})
	woken := make(chan error)
	roomy := make(chan struct{}, 10)
	go func() {
		w := &writer{}
		for o.take(&w.load, gone, func() { roomy <- struct{}{} }) {
			if w.queue.messages == 1 && o.put("3") != isFull {
				t.Error("what was put back does not count while it is written")
			}
			go func() { woken <- o.waitRoom(ctx, nil, nil, nil) }()
			eventually(t, "it waits", func() bool { o.mu.Lock(); defer o.mu.Unlock(); return o.room.Waiters() == 1 })
			w.release()
		}
	}()
	must(t, <-woken)
	<-roomy
	<-roomy
	close(gone)
}

func TestOutboxEnds(t *testing.T) {
	t.Parallel()
	o := newOutbox(hwm{1, unbounded})
	l := newLender()
	big := wire(string(make([]byte, lendFrom)))
	o.offerWire(nil, big, 1, l)
	o.put("refused")
	waits := make(chan error)
	go func() { waits <- o.waitRoom(context.Background(), nil, nil, nil) }()
	o.discard()
	must(t, <-waits)
	if l.refs.Load() != 0 || o.drops != 1 || o.put("again") != accepted {
		t.Errorf("after discard: %d references, %d drops", l.refs.Load(), o.drops)
	}
	o.put("refused")
	go func() { waits <- o.waitRoom(context.Background(), nil, nil, nil) }()
	o.end()
	must(t, <-waits)
	if v := o.put("never"); v != isEnded || !o.command([]byte("never")) || o.queue.bytes() != 0 {
		t.Errorf("after end: %v, %d bytes", v, o.queue.bytes())
	}
	o.putBack(wire("never"), 1)
	if o.queue.messages != 0 {
		t.Error("putBack after end kept a message")
	}

	o = newOutbox(hwm{1, unbounded})
	o.put("1")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := o.waitRoom(ctx, nil, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("waitRoom with a context that has ended: %v", err)
	}
	done := make(chan struct{})
	close(done)
	if err := o.waitRoom(context.Background(), nil, done, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("waitRoom of a closed socket: %v", err)
	}
	o.seal()
	if v := o.put("sealed"); v != isEnded || o.queue.messages != 1 {
		t.Errorf("after seal: %v, %d messages", v, o.queue.messages)
	}
}

// TestOutboxPeer: what is meant for one connection never goes out on another.
func TestOutboxPeer(t *testing.T) {
	t.Parallel()
	o := newOutbox(hwm{1, unbounded})
	one, two := &Peer{}, &Peer{}
	if o.offer(one, nil, [][]byte{nil}) != isEnded {
		t.Error("accepted before the connection began")
	}
	o.attach(one)
	if o.offer(two, nil, [][]byte{nil}) != isEnded || o.offer(one, nil, [][]byte{nil}) != accepted {
		t.Error("wrong peer")
	}
	o.discard()
	o.attach(two)
	if o.offer(one, nil, [][]byte{nil}) != isEnded {
		t.Error("accepted for a connection that has ended")
	}
	must(t, o.waitRoom(context.Background(), one, nil, nil))
}

// TestOutboxControl: PONGs are bounded, and the newest survives; commands are
// refused when the bytes pile up.
func TestOutboxControl(t *testing.T) {
	t.Parallel()
	o := newOutbox(hwm{1, 1000})
	for i := range 100_000 {
		o.pong(binary.BigEndian.AppendUint64(nil, uint64(i)))
	}
	newest := zmtp.AppendPong(nil, binary.BigEndian.AppendUint64(nil, 99_999))
	if len(o.head.bytes) > maxPongs+100 || !bytes.HasSuffix(o.head.bytes, newest) {
		t.Errorf("%d bytes of PONGs", len(o.head.bytes))
	}
	n := 0
	for o.command(make([]byte, 100)) {
		n++
	}
	if n != 10 {
		t.Errorf("%d commands were taken, want 10", n)
	}
	if o.put("x") != accepted {
		t.Error("commands must not keep messages out before there is one")
	}
}

// TestOutboxFlushed: whoever lingers is told when all messages are written or
// dropped, and not before.
func TestOutboxFlushed(t *testing.T) {
	t.Parallel()
	for name, finish := range map[string]func(o *outbox, w *writer){
		"written": func(o *outbox, w *writer) {
			gone := make(chan struct{})
			close(gone)
			o.take(&w.load, gone, nil)
		},
		"discarded": func(o *outbox, _ *writer) { o.discard() },
		"ended":     func(o *outbox, _ *writer) { o.end() },
		"put back":  func(o *outbox, _ *writer) { o.putBack(nil, 0) },
	} {
		o := newOutbox(hwm{10, unbounded})
		if o.flushed() != nil {
			t.Errorf("%s: not flushed from the start", name)
		}
		o.put("1")
		told := o.flushed()
		if told == nil {
			t.Errorf("%s: flushed with a message queued", name)
		}
		_, w := takenFrom(t, o)
		if o.flushed() != told {
			t.Errorf("%s: flushed with a message in the writer's hands", name)
		}
		w.release()
		finish(o, w)
		select {
		case <-told:
		default:
			t.Errorf("%s: nobody was told", name)
		}
		if o.flushed() != nil {
			t.Errorf("%s: not flushed", name)
		}
	}
	// Subscriptions and PONGs are not worth waiting for.
	o := newOutbox(hwm{10, unbounded})
	o.command([]byte("x"))
	o.pong(nil)
	if o.flushed() != nil {
		t.Error("commands keep Close waiting")
	}
}

// TestOutboxWakes has senders and a writer meet in all orders: no wake-up of
// either is lost.
func TestOutboxWakes(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := newOutbox(hwm{3, unbounded})
	const senders, each = 4, 10_000
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			for range each {
				for o.put("x") != accepted {
					if err := o.waitRoom(ctx, nil, nil, nil); err != nil {
						t.Errorf("a wake-up was lost: %v", err)
						return
					}
				}
			}
		})
	}
	gone := make(chan struct{})
	taken := make(chan int)
	go func() {
		w, n := &writer{}, 0
		for o.take(&w.load, gone, func() {}) {
			n += w.queue.messages
			w.release()
			if n == senders*each {
				break
			}
		}
		taken <- n
	}()
	within(t, "the writer", func() {
		if n := <-taken; n != senders*each {
			t.Errorf("%d messages were taken", n)
		}
	})
	wg.Wait()
}

// TestOutboxRests: an idle outbox holds no buffers.
func TestOutboxRests(t *testing.T) {
	t.Parallel()
	o := newOutbox(hwm{unbounded, unbounded})
	l := newLender()
	big := wire(string(make([]byte, lendFrom)))
	for range 1000 {
		o.offerWire(nil, big, 1, l)
		o.put(string(make([]byte, 1000)))
	}
	_, w := takenFrom(t, o)
	w.release()
	gone := make(chan struct{})
	close(gone)
	o.take(&w.load, gone, nil)
	for _, q := range []*outqueue{&o.queue, &w.queue} {
		if q.stage != nil || cap(q.items) > keepItems {
			t.Errorf("keeps a stage, or %d items", cap(q.items))
		}
	}
}
