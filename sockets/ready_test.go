package sockets

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// TestEvents: Events agrees with TryRecv and TrySend.
func TestEvents(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pull := bind(t, NewPull, Options{})
	push := open(t, NewPush, Options{SendHWM: 1})
	if e := push.Events(); e != 0 {
		t.Errorf("without a peer: %v", e)
	}
	if e := pull.Events(); e != 0 {
		t.Errorf("with nothing to receive: %v", e)
	}
	must(t, push.Connect(pull.LastEndpoint()))
	if e := push.Events(); e != PollOut {
		t.Errorf("with a peer: %v", e)
	}
	for range 100 {
		// Receive calls read the connection themselves in between.
		must(t, push.Send(ctx, []byte("m")))
		eventually(t, "a message", func() bool { return pull.Events() == PollIn })
		if _, peer, err := pull.TryRecvFrom(); err != nil || peer == nil {
			t.Fatal(peer, err)
		}
		if e := pull.Events(); e != 0 {
			t.Fatalf("with nothing left: %v", e)
		}
	}
	if _, peer, err := pull.TryRecvFrom(); peer != nil || !errors.Is(err, ErrWouldBlock) {
		t.Error(peer, err)
	}
	rep := bind(t, NewRep, Options{})
	req := open(t, NewReq, Options{})
	must(t, req.Connect(rep.LastEndpoint()))
	must(t, req.Send(ctx, []byte("question")))
	eventually(t, "the request", func() bool { return rep.Events() == PollIn })
	if e := req.Events(); e != 0 {
		t.Errorf("REQ waits for its reply: %v", e)
	}
	_, err := rep.Recv(ctx)
	must(t, err)
	if e := rep.Events(); e != PollOut {
		t.Errorf("REP is to reply: %v", e)
	}
	must(t, pull.Close())
	if e := pull.Events(); e != PollIn|PollOut {
		t.Errorf("closed: %v", e)
	}
	xpub := bind(t, NewXPub, Options{})
	sub := subscribed(t, Options{}, xpub.LastEndpoint(), "a")
	if m, peer, err := xpub.TryRecvFrom(); err != nil || string(m[0]) != "\x01a" || peer.SocketType() != "SUB" {
		t.Errorf("%q, %v, %v", m, peer, err)
	}
	must(t, sub.Close())
}

// TestOnReadyIn: after each call of the hook everything is received. No message stays
// behind, though they come at all times.
func TestOnReadyIn(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, endpoint := range []string{anyPort, "inproc://ready"} {
		pull := open(t, NewPull, Options{Inproc: &Inproc{}})
		must(t, pull.Bind(ctx, endpoint))
		push := open(t, NewPush, Options{Inproc: pull.opts().Inproc})
		must(t, push.Connect(pull.LastEndpoint()))
		wake := make(chan struct{}, 1)
		var calls atomic.Int32
		stop, err := pull.OnReady(PollIn, func(e PollEvents) {
			calls.Add(1)
			if e != PollIn {
				t.Errorf("events %v", e)
			}
			select {
			case wake <- struct{}{}:
			default:
			}
		})
		must(t, err)
		const last = 3000
		var sender sync.WaitGroup
		sender.Go(func() {
			for i := 1; i <= last; i++ {
				must(t, push.Send(ctx, []byte(strconv.Itoa(i))))
				if i%100 == 0 { // the receiver catches up, in the middle of anything
					for pull.Events() != 0 {
						if ctx.Err() != nil {
							return
						}
					}
				}
			}
		})
		for n := 0; n < last; {
			select {
			case <-wake:
			case <-ctx.Done():
				t.Fatalf("%s: %d messages, then no call", endpoint, n)
			}
			for {
				m, err := pull.TryRecv()
				if errors.Is(err, ErrWouldBlock) {
					break
				}
				must(t, err)
				if n++; string(m[0]) != strconv.Itoa(n) {
					t.Fatalf("%q is not %d", m, n)
				}
			}
		}
		sender.Wait()
		stop()
		stop()
		before := calls.Load()
		eventually(t, "the end of the hook", func() bool { return !pull.core.In.Status().Watched })
		must(t, push.Send(ctx, []byte("later")))
		_, err = pull.Recv(ctx)
		must(t, err)
		if n := calls.Load(); n > before+1 { // one may have been in progress
			t.Errorf("%s: %d calls after the end", endpoint, n-before)
		}
	}
}

// TestOnReadyEdge: messages that are added to others cause no further call.
func TestOnReadyEdge(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pull := bind(t, NewPull, Options{})
	push := open(t, NewPush, Options{})
	must(t, push.Connect(pull.LastEndpoint()))
	must(t, pull.WaitPeers(ctx, 1))
	pending := func(n int) {
		t.Helper()
		eventually(t, "messages", func() bool { return pull.Peers()[0].PendingMessages == n })
	}
	calls := make(chan PollEvents, 100)
	stop, err := pull.OnReady(PollIn, func(e PollEvents) { calls <- e })
	must(t, err)
	defer stop()
	must(t, push.Send(ctx, []byte("1")))
	<-calls
	for i := 2; i <= 20; i++ {
		must(t, push.Send(ctx, []byte(strconv.Itoa(i))))
		pending(i)
	}
	for range 20 {
		_, err := pull.TryRecv()
		must(t, err)
	}
	must(t, push.Send(ctx, []byte("21")))
	<-calls
	if n := len(calls); n > 1 { // changes of connections count too
		t.Errorf("%d more calls", n)
	}
}

// TestOnReadyOut: the hook is called when a full queue has room again, and when there
// is a peer at last.
func TestOnReadyOut(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	push := bind(t, NewPush, Options{SendHWM: 10})
	calls := make(chan PollEvents, 1000)
	stop, err := push.OnReady(PollOut|PollIn, func(e PollEvents) { calls <- e })
	must(t, err)
	defer stop()
	if len(calls) > 0 {
		t.Error("ready without a peer")
	}
	pull := open(t, NewPull, Options{RecvHWM: 10})
	must(t, pull.Connect(push.LastEndpoint()))
	sent, received := 0, 0
	body := make([]byte, 64<<10)
	for received < 1000 {
		for sent < 1000 {
			err := push.TrySend(body)
			if errors.Is(err, ErrWouldBlock) {
				break
			}
			must(t, err)
			sent++
		}
		for received < sent {
			_, err := pull.Recv(ctx)
			must(t, err)
			received++
		}
		if sent < 1000 {
			if e := <-calls; e != PollOut {
				t.Fatalf("events %v", e)
			}
		}
	}
}

// TestOnReadyRep: a REP is ready for the next request when it has replied to the one
// before, though both have come long ago.
func TestOnReadyRep(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	rep := bind(t, NewRep, Options{})
	dealer := open(t, NewDealer, Options{})
	must(t, dealer.Connect(rep.LastEndpoint()))
	for range 3 {
		must(t, dealer.Send(ctx, nil, []byte("request")))
	}
	eventually(t, "requests", func() bool { p := rep.Peers(); return len(p) == 1 && p[0].PendingMessages == 3 })
	calls := make(chan PollEvents, 100)
	stop, err := rep.OnReady(PollIn, func(e PollEvents) { calls <- e })
	must(t, err)
	defer stop()
	for range 3 {
		m := Message(nil)
		for m == nil {
			<-calls
			if m, err = rep.TryRecv(); !errors.Is(err, ErrWouldBlock) {
				must(t, err)
			}
		}
		must(t, rep.Send(ctx, m...))
	}
}

// TestOnReadyClose: the last call says that the socket is closed, Close waits for it,
// and a closed socket takes no hook.
func TestOnReadyClose(t *testing.T) {
	t.Parallel()
	pull := bind(t, NewPull, Options{})
	var last atomic.Uint32
	_, err := pull.OnReady(PollIn|PollOut, func(e PollEvents) { last.Store(uint32(e)) })
	must(t, err)
	var stopped func()
	ready := make(chan struct{})
	stopped, err = pull.OnReady(PollIn, func(PollEvents) {
		<-ready
		stopped() // from the hook itself
	})
	must(t, err)
	close(ready)
	must(t, pull.Close())
	if e := PollEvents(last.Load()); e != PollIn|PollOut {
		t.Errorf("the last call had %v", e)
	}
	if _, err := pull.OnReady(PollIn, func(PollEvents) {}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}
