package queue

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"clustermap/internal/wake"
	"clustermap/zmtp"
)

func (o *Outbox) state() drainState {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.drain
}

// TestDrain goes through the states of a connection's writer.
func TestDrain(t *testing.T) {
	t.Parallel()
	o := newOutbox(HWM{Messages: Unbounded, Bytes: Unbounded})
	starts := 0
	start := func() { starts++ }
	want := func(what string, d drainState, n int) {
		t.Helper()
		if o.state() != d || starts != n {
			t.Fatalf("%s: state %d and %d starts, want %d and %d", what, o.state(), starts, d, n)
		}
	}
	var l Load
	gone := make(chan struct{})
	took := make(chan bool)
	take := func() { took <- o.Take(&l, gone, func() {}) }
	sleeps := func() {
		t.Helper()
		eventually(t, "it sleeps", func() bool { return o.state() == asleep })
	}

	o.put("early")
	want("queued before there is a connection", absent, 0)
	o.Launch(start, Direct{}, false)
	want("a connection", working, 1)
	o.put("more")
	want("queued while it works", working, 1)
	go take()
	if !<-took || l.queue.Messages != 2 {
		t.Fatalf("%d messages were taken", l.queue.Messages)
	}
	l.Clear()
	go take()
	sleeps()
	o.Pong(nil)
	if !<-took {
		t.Fatal("it ends")
	}
	want("woken", working, 1)
	l.Clear()

	go take()
	sleeps()
	if !o.Retire() || o.state() != idle {
		t.Fatal("one look ends it")
	}
	o.put("idle")
	if !<-took {
		t.Fatal("it ends")
	}
	l.Clear()
	go take()
	sleeps()
	if !o.Retire() || o.state() != idle {
		t.Fatal("one look ends it")
	}
	if !o.Retire() || <-took {
		t.Fatal("two looks do not end it")
	}
	want("retired", uncalled, 1)
	if o.Retire() {
		t.Error("a writer that was not started may retire")
	}
	o.put("again")
	want("queued when it was retired", working, 2)
	go take()
	if !<-took {
		t.Fatal("it ends")
	}
	l.Clear()

	go take()
	sleeps()
	close(gone)
	if <-took {
		t.Fatal("it goes on without a connection")
	}
	o.put("late")
	want("the connection has ended", absent, 2)
	o.Halt()
	o.put("late")
	want("halted", absent, 2)
}

// TestDrainConcurrent: connections come and go, and writers retire, while messages
// are queued: there is never more than one at work, and each message is taken once and
// in order.
func TestDrainConcurrent(t *testing.T) {
	t.Parallel()
	const messages = 20_000
	o := newOutbox(HWM{Messages: 100, Bytes: Unbounded})
	ctx := testContext(t)
	var others sync.WaitGroup
	defer others.Wait()
	done := make(chan struct{})
	defer close(done)
	others.Go(func() {
		for i := range messages {
			for o.put(fmt.Sprint(i)) != Accepted {
				if o.WaitRoom(ctx, nil, done, nil) != nil {
					return
				}
			}
			if i%7 == 0 {
				runtime.Gosched()
			}
		}
	})
	others.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				o.Retire()
				runtime.Gosched()
			}
		}
	})
	var got int // not guarded: writers take turns
	var all atomic.Int64
	for connection := 0; all.Load() < messages && ctx.Err() == nil && !t.Failed(); connection++ {
		gone := make(chan struct{})
		var writers sync.WaitGroup
		var busy atomic.Int32
		o.Launch(func() {
			writers.Go(func() {
				var l Load
				for o.Take(&l, gone, func() {}) {
					if busy.Add(1) != 1 {
						t.Error("two writers are at work")
					}
					for rest := zmtp.WireMessage(bytes.Join(l.Gather(nil), nil)); len(rest) > 0; {
						var body []byte
						if body, rest = rest.Next(); string(body) != fmt.Sprint(got) {
							t.Errorf("%q came for message %d", body, got)
						}
						got++
					}
					all.Store(int64(got))
					l.Clear()
					busy.Add(-1)
				}
			})
		}, Direct{}, connection%5 == 0)
		for range connection % 50 {
			runtime.Gosched()
		}
		close(gone)
		o.Halt()
		writers.Wait()
	}
	if all.Load() != messages {
		t.Errorf("%d of %d messages came", all.Load(), messages)
	}
}

// TestHead: the first messages of a connection go out first, PONGs behind them, and none
// of them on another connection.
func TestHead(t *testing.T) {
	t.Parallel()
	o := newOutbox(HWM{Messages: Unbounded, Bytes: Unbounded})
	o.put("queued")
	o.Precede(wire("hello"), 1)
	o.Pong([]byte("1"))
	o.Precede(wire("probe"), 1)
	for range maxPongs {
		o.Pong([]byte("2"))
	}
	got, w := takenFrom(t, o)
	begin := append(append(wire("hello"), zmtp.AppendPong(nil, []byte("1"))...), wire("probe")...)
	if !bytes.HasPrefix(got, begin) || !bytes.HasSuffix(got, wire("queued")) || len(got) > len(begin)+maxPongs+100 {
		t.Errorf("%d bytes: %q...", len(got), got[:min(len(got), 50)])
	}
	if o.Flushed() == nil {
		t.Error("the outbox counts as flushed")
	}
	w.Clear()

	o.Precede(wire("hello"), 1)
	if o.Flushed() == nil {
		t.Error("the outbox counts as flushed")
	}
	o.PutBack(new(Load))
	if o.Flushed() != nil {
		t.Error("the outbox waits for a connection that has ended")
	}
	o.put("next")
	if got, _ := takenFrom(t, o); !bytes.Equal(got, wire("next")) {
		t.Errorf("%q is taken for the next connection", got)
	}

	// A socket of this process takes messages alone.
	o = newOutbox(HWM{Messages: Unbounded, Bytes: Unbounded})
	o.put("queued")
	o.Precede(wire("hello"), 1)
	var q Wire
	if !o.Exchange(&q) || q.Messages != 2 || !bytes.Equal(q.Items[0].wire, wire("hello")) || !bytes.Equal(q.Items[1].wire, wire("queued")) {
		t.Errorf("%d messages are exchanged", q.Messages)
	}
	if o.held != (HWM{Messages: 2, Bytes: q.Bytes()}) {
		t.Errorf("%v count as queued", o.held)
	}
	q.Drop()
}

// TestHeadLetsGo: an empty head keeps no large buffer.
func TestHeadLetsGo(t *testing.T) {
	t.Parallel()
	var h head
	h.add(make([]byte, 2*keepHead), 0)
	h.clear()
	if cap(h.bytes) > 0 {
		t.Errorf("it keeps %d bytes", cap(h.bytes))
	}
	h.add(make([]byte, 10), 1)
	h.clear()
	if cap(h.bytes) == 0 || h.messages+h.kept+len(h.bytes) > 0 {
		t.Errorf("%+v", h)
	}
}

// TestDirect: a sender itself writes a message for which the sleeping writer need not be
// woken. The unwritten rest of a message precedes all messages queued since.
func TestDirect(t *testing.T) {
	t.Parallel()
	o := newOutbox(HWM{Messages: Unbounded, Bytes: Unbounded})
	conn, starts, most := new(Conn), 0, 100
	var written []byte
	o.Attach(conn)
	o.Launch(func() { starts++ }, Direct{Write: func(b []byte) int {
		n := min(len(b), most)
		written = append(written, b[:n]...)
		return n
	}}, false)
	whole, part := wire("whole", ""), wire("part", "of it")
	o.put("whole", "")
	if !bytes.Equal(written, whole) || starts != 0 || o.Flushed() != nil || conn.MessagesOut.Load() != 1 {
		t.Errorf("%q was written, and %d writers started", written, starts)
	}
	most = 3
	o.put("part", "of it")
	o.Pong([]byte("context"))
	o.put("next", "")
	if starts != 1 || o.Flushed() == nil || conn.MessagesOut.Load() != 1 || conn.BytesOut.Load() != uint64(len(whole)+len(part)) {
		t.Errorf("%d writers started, %d messages of %d bytes were counted", starts, conn.MessagesOut.Load(), conn.BytesOut.Load())
	}
	got, l := takenFrom(t, o)
	rest := append(part[3:], zmtp.AppendPong(nil, []byte("context"))...)
	if !bytes.Equal(got, append(rest, wire("next", "")...)) || l.messages() != 2 || o.Status().Head > 0 {
		t.Errorf("%q and %d messages are taken, want %q and 2", got, l.messages(), rest)
	}
}

// TestDirectLarge: a sender writes a large request or reply itself, in pieces. What the kernel does
// not take precedes all messages queued since; a message of which it takes nothing is queued.
func TestDirectLarge(t *testing.T) {
	t.Parallel()
	body := bytes.Repeat([]byte("body "), directPiece/2)
	frames := [][]byte{[]byte("first"), {}, body}
	whole := append(wire("lead"), zmtp.AppendMessage(nil, frames...)...)
	whole[0] |= zmtp.FlagMore
	lead := whole[:len(wire("lead"))]
	start := len(whole) - len(body)
	for _, most := range []int{len(whole), len(whole) - 1, directPiece + 1, directPiece, directPiece - 1, start + 1, start, start - 1, 1, 0} {
		o := newOutbox(HWM{Messages: Unbounded, Bytes: Unbounded})
		conn, starts := new(Conn), 0
		var written []byte
		o.Attach(conn)
		o.Launch(func() { starts++ }, Direct{Write: func(b []byte) int {
			if len(b) > directPiece {
				t.Errorf("a piece of %d bytes", len(b))
			}
			n := min(len(b), most-len(written))
			written = append(written, b[:n]...)
			return n
		}}, false)
		if v := o.Offer(nil, lead, frames); v != Accepted {
			t.Fatal(v)
		}
		messages := conn.MessagesOut.Load()
		if messages > 0 != (most == len(whole)) || starts > 0 == (most == len(whole)) {
			t.Errorf("%d bytes: %d messages were counted, and %d writers started", most, messages, starts)
		}
		clear(body) // the sender's again
		o.put("next", "")
		got, _ := takenFrom(t, o)
		copy(body, bytes.Repeat([]byte("body "), directPiece/2))
		if got = append(written, got...); !bytes.Equal(got, append(whole[:len(whole):len(whole)], wire("next", "")...)) {
			t.Errorf("%d bytes: %d come out, want %d", most, len(got), len(whole))
		}
	}
}

// TestDirectLargeIsForIdleConnections: the sender of a large message leaves it to a writer that is at work, behind queued
// messages, and if it may have more to send at once.
func TestDirectLargeIsForIdleConnections(t *testing.T) {
	t.Parallel()
	large := string(make([]byte, maxDirect+1))
	for name, c := range map[string]struct {
		idle   *wake.Idle
		before func(o *Outbox)
		frame  string
	}{
		"at work":   {nil, func(o *Outbox) { o.Pong(nil) }, large},
		"queued":    {nil, func(o *Outbox) { o.put("queued") }, large},
		"publisher": {new(wake.Idle), func(*Outbox) {}, large},
		"huge":      {nil, func(*Outbox) {}, string(make([]byte, maxLarge+1))},
	} {
		o := newOutbox(HWM{Messages: Unbounded, Bytes: Unbounded})
		o.Launch(func() {}, Direct{Idle: c.idle, Write: func(b []byte) int {
			t.Errorf("%s: %d bytes were written", name, len(b))
			return 0
		}}, false)
		c.before(o)
		o.put("first", c.frame)
	}
}

// TestGather: senders that fill the queue again at once add to the same write, but not
// without end, and the high-water mark holds for messages queued behind it.
func TestGather(t *testing.T) {
	t.Parallel()
	const most = 10
	fill := func(o *Outbox, n int) (put int) {
		for put < n && o.put("message") == Accepted {
			put++
		}
		return put
	}
	for _, c := range []struct {
		name        string
		again, want int // messages
	}{
		{"at once", most + 1, (maxGathers + 1) * most},
		{"less than full", most - 1, 2*most - 1},
		{"not", 0, most},
	} {
		o := newOutbox(HWM{Messages: most, Bytes: Unbounded})
		o.Launch(func() {}, Direct{}, false)
		if n := fill(o, most+1); n != most {
			t.Fatalf("%s: the queue took %d messages", c.name, n)
		}
		l := Load{Gathers: true, full: true}
		calls := 0
		took := o.Take(&l, nil, func() {
			if calls++; calls <= maxGathers { // the last one is not of gather
				fill(o, c.again)
			}
		})
		if !took || l.queue.Messages != c.want {
			t.Errorf("%s: %d messages were taken, want %d", c.name, l.queue.Messages, c.want)
		}
		if n := fill(o, 2*most); n != most {
			t.Errorf("%s: the queue takes %d messages behind that", c.name, n)
		}
	}

	o := newOutbox(HWM{Messages: 2, Bytes: Unbounded})
	o.Launch(func() {}, Direct{}, false)
	large := string(make([]byte, goodWrite/2))
	o.put(large)
	o.put(large)
	if o.put(large) != Full {
		t.Fatal("the queue is not full")
	}
	l := Load{Gathers: true, full: true}
	o.Take(&l, nil, func() { o.put(large) })
	if l.queue.Messages != 2 {
		t.Errorf("a large write of %d messages has waited for more", l.queue.Messages)
	}
}
