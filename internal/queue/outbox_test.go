package queue

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"

	"clustermap/internal/testenv"
	"clustermap/zmtp"
)

func newOutbox(limits HWM) *Outbox {
	o := &Outbox{}
	o.Init(limits, false)
	return o
}

func (o *Outbox) put(frames ...string) Verdict {
	parts := make([][]byte, len(frames))
	for i, f := range frames {
		parts[i] = []byte(f)
	}
	if len(parts) == 1 {
		return o.OfferOne(nil, parts[0])
	}
	return o.Offer(nil, nil, parts)
}

// messages is how many were taken.
func (l *Load) messages() int { return l.queue.Messages + l.head.messages }

// takenFrom takes the queued messages, without waiting, and returns their bytes.
func takenFrom(t *testing.T, o *Outbox) (data []byte, w *Load) {
	t.Helper()
	w = &Load{}
	if !o.Take(w, nil, func() {}) {
		t.Fatal("take failed")
	}
	return bytes.Join(w.Gather(nil), nil), w
}

// TestOutboxStages: copied messages go to stages of a bounded size, except larger
// messages, and come out in order; each stage is free when all of it is released. It does
// not run beside other tests, which could use such a stage at once.
func TestOutboxStages(t *testing.T) {
	o := newOutbox(HWM{Messages: Unbounded, Bytes: Unbounded})
	l := newLender()
	var want []byte
	put := func(size int) {
		body := bytes.Repeat([]byte{byte('a' + len(want)%26)}, size)
		if o.put(string(body)) != Accepted {
			t.Fatal("not Accepted")
		}
		want = append(want, wire(string(body))...)
	}
	lent := wire(string(make([]byte, LendFrom)))
	for range 3 {
		put(100)
		o.OfferWire(nil, lent, 1, l)
		want = append(want, lent...)
		put(FullStage / 2)
		put(FullStage / 2)
		put(3 * FullStage)
		put(0)
	}
	batch := [][]byte{make([]byte, FullStage/2), make([]byte, FullStage/3), make([]byte, FullStage/3), nil, make([]byte, 2*FullStage), nil}
	if n := o.OfferEach(nil, batch); n != len(batch) {
		t.Fatalf("%d of %d accepted", n, len(batch))
	}
	for _, b := range batch {
		want = append(want, wire(string(b))...)
	}
	got, w := takenFrom(t, o)
	if !bytes.Equal(got, want) {
		t.Error("something else comes out than went in")
	}
	if w.queue.Bytes() != len(want) || w.queue.Messages != 3*6+len(batch) {
		t.Errorf("counts %d messages of %d bytes, want %d of %d", w.queue.Messages, w.queue.Bytes(), 3*6+len(batch), len(want))
	}
	seen := map[*Stage]int{}
	for _, item := range w.queue.Items {
		if s, ok := item.owner.(*Stage); ok {
			seen[s] += len(item.wire)
			if len(s.Bytes) > FullStage && len(s.Bytes) != 3*FullStage+9 && len(s.Bytes) != 2*FullStage+9 {
				t.Errorf("a stage of %d bytes", len(s.Bytes))
			}
		}
	}
	if s := w.queue.stage; s != nil {
		seen[s] += len(w.queue.staged())
	}
	for s, size := range seen {
		if size != len(s.Bytes) {
			t.Errorf("%d of a stage's %d bytes are queued", size, len(s.Bytes))
		}
	}
	if len(seen) < 10 {
		t.Errorf("%d stages are full", len(seen))
	}
	w.Clear()
	if l.Refs.Load() != 0 {
		t.Error("what was lent is not given back")
	}
	for s := range seen {
		left := int32(0)
		if s == w.queue.stage {
			left = 1 // emptied, for the next message
		}
		if n := s.refs.Load(); n != left {
			t.Errorf("a stage has %d holders left", n)
		}
	}
}

// TestLargeStagesAreUsedAgain: whatever the size of large messages, the stages of those that were sent
// serve for those that follow. It does not run beside other tests, which could use them.
func TestLargeStagesAreUsedAgain(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would empty the pools
	const messages, rounds = 8, 5
	for _, size := range []int{FullStage - 9, FullStage - 8, FullStage, largeStage - 9, largeStage - 8, largeStage, largeStage + 1, 3 * FullStage} {
		o := newOutbox(HWM{Messages: Unbounded, Bytes: Unbounded})
		offers := map[string]func(body []byte){
			"Offer":     func(body []byte) { o.Offer(nil, nil, [][]byte{nil, body}) },
			"OfferOne":  func(body []byte) { o.OfferOne(nil, body) },
			"OfferEach": func(body []byte) { o.OfferEach(nil, [][]byte{body}) },
		}
		for name, offer := range offers {
			body, w := make([]byte, size), &Load{}
			round := func() {
				for range messages {
					offer(body)
				}
				if !o.Take(w, nil, func() {}) || w.messages() != messages {
					t.Fatal("not all were taken")
				}
				w.Clear()
			}
			round()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range rounds {
				round()
			}
			runtime.ReadMemStats(&after)
			// The race detector drops what goes into pools, at random.
			if n := int(after.TotalAlloc - before.TotalAlloc); n > rounds*size && !testenv.RaceDetector {
				t.Errorf("%s: %d messages of %d bytes took %d bytes", name, rounds*messages, size, n)
			}
		}
	}
}

// TestOutboxHWM: exactly so many messages are taken in, and after the writer
// has taken them, as many again.
func TestOutboxHWM(t *testing.T) {
	t.Parallel()
	o := newOutbox(HWM{Messages: 3, Bytes: 1 << 20})
	w := &Load{}
	for range 3 {
		for i := range 3 {
			if v := o.put(fmt.Sprint(i)); v != Accepted {
				t.Fatalf("message %d: %v", i, v)
			}
		}
		if v := o.put("3"); v != Full || o.Would() != Full {
			t.Fatalf("message 3: %v", v)
		}
		roomy := 0
		o.Take(w, nil, func() { roomy++ })
		if w.queue.Messages != 3 || roomy != 1 || o.Would() != Accepted {
			t.Fatalf("%d messages taken, roomy was called %d times", w.queue.Messages, roomy)
		}
		w.Clear()
	}
}

// TestOutboxHWMBytes: below the bound one more message is taken, of any size.
func TestOutboxHWMBytes(t *testing.T) {
	t.Parallel()
	o := newOutbox(HWM{Messages: Unbounded, Bytes: 100})
	for _, c := range []struct {
		size int
		want Verdict
	}{{97, Accepted}, {5000, Accepted}, {0, Full}} {
		if v := o.put(string(make([]byte, c.size))); v != c.want {
			t.Errorf("%d bytes: %v, want %v", c.size, v, c.want)
		}
	}
	if o.queue.Bytes() != 99+5000+9 {
		t.Errorf("%d bytes are counted", o.queue.Bytes())
	}
	o = newOutbox(HWM{Messages: Unbounded, Bytes: 1})
	if o.put(string(make([]byte, 1000))) != Accepted || o.put("") != Full {
		t.Error("an empty queue must take one message of any size")
	}
}

// TestOutboxOrder: copied and lent bytes come out in the order they went in.
func TestOutboxOrder(t *testing.T) {
	t.Parallel()
	o := newOutbox(HWM{Messages: Unbounded, Bytes: Unbounded})
	l := newLender()
	big := wire(string(bytes.Repeat([]byte("b"), LendFrom)))
	runs := append(wire("skipped"), wire("run")...)
	o.put("1", "2")
	o.OfferWire(nil, big, 1, l)
	o.OfferWire(nil, wire("small"), 1, l)
	o.OfferWire(nil, big, 1, nil) // without an owner all is copied
	o.OfferRuns(runs, []Run{{len(wire("skipped")), len(runs)}}, 1)
	o.OfferWire(nil, big, 1, l)
	o.put("end")
	want := bytes.Join([][]byte{wire("1", "2"), big, wire("small"), big, wire("run"), big, wire("end")}, nil)
	if o.queue.Messages != 7 || o.queue.Bytes() != len(want) {
		t.Errorf("counts %d messages, %d bytes", o.queue.Messages, o.queue.Bytes())
	}
	if l.Refs.Load() != 2 {
		t.Errorf("lent %d times, want 2", l.Refs.Load())
	}
	got, w := takenFrom(t, o)
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes come out, want %d", len(got), len(want))
	}
	if l.Refs.Load() != 2 {
		t.Error("released before written")
	}
	w.Clear()
	if l.Refs.Load() != 0 {
		t.Errorf("%d references are left", l.Refs.Load())
	}
}

// TestOutboxBreaks: however often connections break before anything is
// written, the messages stay in order, and bounded in number.
func TestOutboxBreaks(t *testing.T) {
	t.Parallel()
	const limit = 10
	o := newOutbox(HWM{Messages: limit, Bytes: Unbounded})
	var sent, got []string
	for round := range 50 {
		_, w := takenAfter(t, o, func() {
			for o.put(fmt.Sprint(len(sent))) == Accepted {
				sent = append(sent, fmt.Sprint(len(sent)))
			}
		})
		for o.put(fmt.Sprint(len(sent))) == Accepted {
			sent = append(sent, fmt.Sprint(len(sent)))
		}
		if n := o.queue.Messages + w.queue.Messages; n > 2*limit {
			t.Fatalf("round %d: %d messages are held", round, n)
		}
		o.PutBack(w)
	}
	for o.queue.Messages > 0 {
		data, w := takenFrom(t, o)
		for rest := data; len(rest) > 0; {
			var body []byte
			body, after := zmtp.WireMessage(rest).Next()
			got, rest = append(got, string(body)), after
		}
		w.Clear()
	}
	if fmt.Sprint(got) != fmt.Sprint(sent) || len(sent) != 2*limit {
		t.Errorf("sent %v\ngot %v", sent, got)
	}
	gone := make(chan struct{})
	close(gone)
	w := &Load{}
	o.Take(w, gone, func() {})
	if o.put("after") != Accepted {
		t.Error("there is no room after all was written")
	}
}

// takenAfter fills the Outbox and then takes.
func takenAfter(t *testing.T, o *Outbox, fill func()) ([]byte, *Load) {
	t.Helper()
	fill()
	return takenFrom(t, o)
}

// TestOutboxFullOfBack: a sender that waits behind messages that were put back
// is woken when these are written, though nothing else is queued.
func TestOutboxFullOfBack(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := newOutbox(HWM{Messages: 1, Bytes: Unbounded})
	o.put("1")
	_, w := takenFrom(t, o)
	o.PutBack(w)
	if v := o.put("2"); v != Full {
		t.Fatalf("with the bound reached: %v", v)
	}
	gone := make(chan struct{})
	woken := make(chan error)
	roomy := make(chan struct{}, 10)
	go func() {
		w := &Load{}
		for o.Take(w, gone, func() { roomy <- struct{}{} }) {
			if w.queue.Messages == 1 && o.put("3") != Full {
				t.Error("what was put back does not count while it is written")
			}
			go func() { woken <- o.WaitRoom(ctx, nil, nil, nil) }()
			eventually(t, "it waits", func() bool { o.mu.Lock(); defer o.mu.Unlock(); return o.room.Waiters() == 1 })
			w.Clear()
		}
	}()
	must(t, <-woken)
	<-roomy
	<-roomy
	close(gone)
}

func TestOutboxEnds(t *testing.T) {
	t.Parallel()
	o := newOutbox(HWM{Messages: 1, Bytes: Unbounded})
	l := newLender()
	big := wire(string(make([]byte, LendFrom)))
	o.OfferWire(nil, big, 1, l)
	o.put("refused")
	waits := make(chan error)
	go func() { waits <- o.WaitRoom(context.Background(), nil, nil, nil) }()
	o.Discard()
	must(t, <-waits)
	if l.Refs.Load() != 0 || o.drops != 1 || o.put("again") != Accepted {
		t.Errorf("after discard: %d references, %d drops", l.Refs.Load(), o.drops)
	}
	o.put("refused")
	go func() { waits <- o.WaitRoom(context.Background(), nil, nil, nil) }()
	o.End()
	must(t, <-waits)
	if v := o.put("never"); v != Ended || !o.Command([]byte("never")) || o.queue.Bytes() != 0 {
		t.Errorf("after end: %v, %d bytes", v, o.queue.Bytes())
	}

	o = newOutbox(HWM{Messages: 1, Bytes: Unbounded})
	o.put("1")
	_, taken := takenFrom(t, o)
	o.End()
	o.PutBack(taken)
	if o.queue.Messages != 0 {
		t.Error("putBack after end kept a message")
	}

	o = newOutbox(HWM{Messages: 1, Bytes: Unbounded})
	o.put("1")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := o.WaitRoom(ctx, nil, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("waitRoom with a context that has ended: %v", err)
	}
	done := make(chan struct{})
	close(done)
	if err := o.WaitRoom(context.Background(), nil, done, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("waitRoom of a closed socket: %v", err)
	}
	o.Seal()
	if v := o.put("sealed"); v != Ended || o.queue.Messages != 1 {
		t.Errorf("after seal: %v, %d messages", v, o.queue.Messages)
	}
}

// TestOutboxPeer: messages for one connection never go out on another.
func TestOutboxPeer(t *testing.T) {
	t.Parallel()
	o := newOutbox(HWM{Messages: 1, Bytes: Unbounded})
	one, two := &Conn{}, &Conn{}
	if o.Offer(one, nil, [][]byte{nil}) != Ended {
		t.Error("accepted before the connection began")
	}
	o.Attach(one)
	if o.Offer(two, nil, [][]byte{nil}) != Ended || o.Offer(one, nil, [][]byte{nil}) != Accepted {
		t.Error("wrong peer")
	}
	o.Discard()
	o.Attach(two)
	if o.Offer(one, nil, [][]byte{nil}) != Ended {
		t.Error("accepted for a connection that has ended")
	}
	must(t, o.WaitRoom(context.Background(), one, nil, nil))
}

// TestOutboxControl: PONGs are bounded, and the newest survives; commands are
// refused when the bytes pile up.
func TestOutboxControl(t *testing.T) {
	t.Parallel()
	o := newOutbox(HWM{Messages: 1, Bytes: 1000})
	for i := range 100_000 {
		o.Pong(binary.BigEndian.AppendUint64(nil, uint64(i)))
	}
	newest := zmtp.AppendPong(nil, binary.BigEndian.AppendUint64(nil, 99_999))
	if len(o.head.bytes) > maxPongs+100 || !bytes.HasSuffix(o.head.bytes, newest) {
		t.Errorf("%d bytes of PONGs", len(o.head.bytes))
	}
	n := 0
	for o.Command(make([]byte, 100)) {
		n++
	}
	if n != 10 {
		t.Errorf("%d commands were taken, want 10", n)
	}
	if o.put("x") != Accepted {
		t.Error("commands must not keep messages out before there is one")
	}
}

// TestOutboxFlushed: the channel of Flushed is closed when all messages are written or
// dropped, and not before.
func TestOutboxFlushed(t *testing.T) {
	t.Parallel()
	for name, finish := range map[string]func(o *Outbox, w *Load){
		"written": func(o *Outbox, w *Load) {
			gone := make(chan struct{})
			close(gone)
			o.Take(w, gone, nil)
		},
		"discarded": func(o *Outbox, _ *Load) { o.Discard() },
		"ended":     func(o *Outbox, _ *Load) { o.End() },
		"put back":  func(o *Outbox, _ *Load) { o.PutBack(new(Load)) },
	} {
		o := newOutbox(HWM{Messages: 10, Bytes: Unbounded})
		if o.Flushed() != nil {
			t.Errorf("%s: not flushed from the start", name)
		}
		o.put("1")
		told := o.Flushed()
		if told == nil {
			t.Errorf("%s: flushed with a message queued", name)
		}
		_, w := takenFrom(t, o)
		if o.Flushed() != told {
			t.Errorf("%s: flushed with a message in the writer's hands", name)
		}
		w.Clear()
		finish(o, w)
		select {
		case <-told:
		default:
			t.Errorf("%s: nobody was told", name)
		}
		if o.Flushed() != nil {
			t.Errorf("%s: not flushed", name)
		}
	}
	// Subscriptions and PONGs are not worth waiting for.
	o := newOutbox(HWM{Messages: 10, Bytes: Unbounded})
	o.Command([]byte("x"))
	o.Pong(nil)
	if o.Flushed() != nil {
		t.Error("commands keep Close waiting")
	}
}

// TestOutboxWakes has senders and a writer meet in all orders: no wake-up of
// either is lost.
func TestOutboxWakes(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := newOutbox(HWM{Messages: 3, Bytes: Unbounded})
	const senders, each = 4, 10_000
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			for range each {
				for o.put("x") != Accepted {
					if err := o.WaitRoom(ctx, nil, nil, nil); err != nil {
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
		w, n := &Load{}, 0
		for o.Take(w, gone, func() {}) {
			n += w.queue.Messages
			w.Clear()
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

// TestOutboxRests: an idle Outbox holds no buffers.
func TestOutboxRests(t *testing.T) {
	t.Parallel()
	o := newOutbox(HWM{Messages: Unbounded, Bytes: Unbounded})
	l := newLender()
	big := wire(string(make([]byte, LendFrom)))
	for range 1000 {
		o.OfferWire(nil, big, 1, l)
		o.put(string(make([]byte, 1000)))
	}
	_, w := takenFrom(t, o)
	w.Clear()
	gone := make(chan struct{})
	close(gone)
	o.Take(w, gone, nil)
	for _, q := range []*Wire{&o.queue, &w.queue} {
		if q.stage != nil || cap(q.Items) > keepItems {
			t.Errorf("keeps a stage, or %d items", cap(q.Items))
		}
	}
}

// TestOutboxConflate: the last message alone is kept, whole, however it came.
func TestOutboxConflate(t *testing.T) {
	t.Parallel()
	o := new(Outbox)
	o.Init(HWM{Messages: 1, Bytes: 1}, true)
	l := newLender()
	last := func(want ...string) {
		t.Helper()
		if got := o.queue.stage.Bytes; o.queue.Messages != 1 || !bytes.Equal(got, wire(want...)) {
			t.Errorf("%d messages, %q in place of %q", o.queue.Messages, got, want)
		}
	}
	for range 3 {
		o.put("old", string(make([]byte, 1000)))
		o.put("new", "whole")
		last("new", "whole")
		o.put("one")
		last("one")
		if n := o.OfferEach(nil, [][]byte{[]byte("a"), []byte("b"), []byte("c")}); n != 3 {
			t.Errorf("%d of 3 were accepted", n)
		}
		last("c")
		o.OfferWire(nil, append(wire("long", string(make([]byte, LendFrom))), wire("last", "", "one")...), 2, l)
		last("last", "", "one")
	}
	if l.Retained.Load() != 0 {
		t.Error("something was lent")
	}
}

// TestOutboxConnectionEnds: calls that wait for room for one connection end with it,
// though the queue is kept, and full, for the next connection; calls that wait for
// room for any connection go on waiting.
func TestOutboxConnectionEnds(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := newOutbox(HWM{Messages: 1, Bytes: Unbounded})
	conn := &Conn{}
	o.Attach(conn)
	o.put("full")
	done := make(chan struct{})
	ended := make(chan error, 2)
	others := make(chan error, 2)
	for i := range 2 {
		go func() { others <- o.WaitRoom(ctx, nil, done, nil) }()
		go func() { ended <- o.WaitRoom(ctx, conn, done, nil) }()
		eventually(t, "calls wait", func() bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			return o.room.Waiters() == 2*(i+1)
		})
	}
	o.PutBack(&Load{})
	for range 2 {
		select {
		case err := <-ended:
			must(t, err)
		case <-ctx.Done():
			t.Fatal("a call still waits for a connection that has ended")
		}
	}
	if n := len(others); n > 0 {
		t.Errorf("%d calls find room in a full queue", n)
	}
	close(done)
	for range 2 {
		if err := <-others; !errors.Is(err, ErrClosed) {
			t.Errorf("at the end: %v, want %v", err, ErrClosed)
		}
	}
}
