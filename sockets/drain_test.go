package sockets

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"clustermap/zmtp"
)

func (o *outbox) state() drainState {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.drain
}

// TestDrain goes through the states of a connection's writer.
func TestDrain(t *testing.T) {
	t.Parallel()
	o := newOutbox(hwm{unbounded, unbounded})
	starts := 0
	start := func() { starts++ }
	want := func(what string, d drainState, n int) {
		t.Helper()
		if o.state() != d || starts != n {
			t.Fatalf("%s: state %d and %d starts, want %d and %d", what, o.state(), starts, d, n)
		}
	}
	var l load
	gone := make(chan struct{})
	took := make(chan bool)
	take := func() { took <- o.take(&l, gone, func() {}) }
	sleeps := func() {
		t.Helper()
		eventually(t, "it sleeps", func() bool { return o.state() == asleep })
	}

	o.put("early")
	want("queued before there is a connection", absent, 0)
	o.launch(start, nil, false)
	want("a connection", working, 1)
	o.put("more")
	want("queued while it works", working, 1)
	go take()
	if !<-took || l.queue.messages != 2 {
		t.Fatalf("%d messages were taken", l.queue.messages)
	}
	l.clear()
	go take()
	sleeps()
	o.pong(nil)
	if !<-took {
		t.Fatal("it ends")
	}
	want("woken", working, 1)
	l.clear()

	go take()
	sleeps()
	if !o.retire() || o.state() != drowsy {
		t.Fatal("one look ends it")
	}
	o.put("drowsy")
	if !<-took {
		t.Fatal("it ends")
	}
	l.clear()
	go take()
	sleeps()
	if !o.retire() || o.retire() || <-took {
		t.Fatal("two looks do not end it")
	}
	want("retired", uncalled, 1)
	if o.retire() {
		t.Error("a writer that was not started may retire")
	}
	o.put("again")
	want("queued when it was retired", working, 2)
	go take()
	if !<-took {
		t.Fatal("it ends")
	}
	l.clear()

	go take()
	sleeps()
	close(gone)
	if <-took {
		t.Fatal("it goes on without a connection")
	}
	o.put("late")
	want("the connection has ended", absent, 2)
	o.halt()
	o.put("late")
	want("halted", absent, 2)
}

// TestDrainConcurrent: connections come and go, and writers retire, while messages
// are queued: there is never more than one at work, and each message is taken once and
// in order.
func TestDrainConcurrent(t *testing.T) {
	t.Parallel()
	const messages = 20_000
	o := newOutbox(hwm{100, unbounded})
	ctx := testContext(t)
	var others sync.WaitGroup
	defer others.Wait()
	done := make(chan struct{})
	defer close(done)
	others.Go(func() {
		for i := range messages {
			for o.put(fmt.Sprint(i)) != accepted {
				if o.waitRoom(ctx, nil, done, nil) != nil {
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
				o.retire()
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
		o.launch(func() {
			writers.Go(func() {
				var l load
				for o.take(&l, gone, func() {}) {
					if busy.Add(1) != 1 {
						t.Error("two writers are at work")
					}
					w := &writer{load: l}
					w.gather()
					for rest := zmtp.Message(bytes.Join(w.bufs, nil)); len(rest) > 0; {
						var body []byte
						if body, rest = rest.Next(); string(body) != fmt.Sprint(got) {
							t.Errorf("%q came for message %d", body, got)
						}
						got++
					}
					all.Store(int64(got))
					l.clear()
					busy.Add(-1)
				}
			})
		}, nil, connection%5 == 0)
		for range connection % 50 {
			runtime.Gosched()
		}
		close(gone)
		o.halt()
		writers.Wait()
	}
	if all.Load() != messages {
		t.Errorf("%d of %d messages came", all.Load(), messages)
	}
}

// TestHead: what a connection begins with goes out first, PONGs behind it, and none of
// it on another connection.
func TestHead(t *testing.T) {
	t.Parallel()
	o := newOutbox(hwm{unbounded, unbounded})
	o.put("queued")
	o.precede(wire("hello"), 1)
	o.pong([]byte("1"))
	o.precede(wire("probe"), 1)
	for range maxPongs {
		o.pong([]byte("2"))
	}
	got, w := takenFrom(t, o)
	begin := append(append(wire("hello"), zmtp.AppendPong(nil, []byte("1"))...), wire("probe")...)
	if !bytes.HasPrefix(got, begin) || !bytes.HasSuffix(got, wire("queued")) || len(got) > len(begin)+maxPongs+100 {
		t.Errorf("%d bytes: %q...", len(got), got[:min(len(got), 50)])
	}
	if o.flushed() == nil {
		t.Error("the outbox counts as flushed")
	}
	w.release()

	o.precede(wire("hello"), 1)
	if o.flushed() == nil {
		t.Error("the outbox counts as flushed")
	}
	o.putBack(nil, 0)
	if o.flushed() != nil {
		t.Error("the outbox waits for a connection that has ended")
	}
	o.put("next")
	if got, _ := takenFrom(t, o); !bytes.Equal(got, wire("next")) {
		t.Errorf("%q is taken for the next connection", got)
	}

	// A socket of this process takes messages alone.
	o = newOutbox(hwm{unbounded, unbounded})
	o.put("queued")
	o.precede(wire("hello"), 1)
	var q outqueue
	if !o.exchange(&q) || q.messages != 2 || !bytes.Equal(q.items[0].wire, wire("hello")) || !bytes.Equal(q.staged(), wire("queued")) {
		t.Errorf("%d messages are exchanged", q.messages)
	}
	if o.held != (hwm{2, q.bytes()}) {
		t.Errorf("%v count as queued", o.held)
	}
	q.clear()
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
