package sockets

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// TestRepLargeEnvelope: a REP does not keep the memory of a large envelope.
func TestRepLargeEnvelope(t *testing.T) {
	t.Parallel()
	rep := bind(t, NewRep, Options{})
	r := dialRaw(t, rep.LastEndpoint()).Greet("DEALER", nil)
	r.Send(wire(strings.Repeat("y", 2*keepEnvelope), "", "request"))
	wants(t, rep, "request")
	says(t, rep, "reply")
	r.Message()
	if cap(rep.envelope) > keepEnvelope {
		t.Errorf("a buffer of %d bytes is kept", cap(rep.envelope))
	}
}

// TestRepMalformed: a message without a delimiter, or without anything behind
// it, is no request. It is dropped; others of the same peer are served.
func TestRepMalformed(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	rep := bind(t, NewRep, Options{RecvTimeout: hang})
	r := dialRaw(t, rep.LastEndpoint()).Greet("DEALER", nil)
	r.Send(wire(""), wire("x"), wire("x", "y"), wire("x", ""), wire("id", "", "good"), wire("a", "b", "c"))
	wants(t, rep, "good")
	must(t, rep.Send(ctx, []byte("reply")))
	if m := r.Message(); fmt.Sprint(texts(m)) != "[id  reply]" {
		t.Errorf("%q", m)
	}
	eventually(t, "five were dropped", func() bool { return rep.Peers()[0].Discarded == 5 })
	if _, err := rep.TryRecv(); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("%v", err)
	}
}

// TestRepGone: the reply to a peer that has gone is dropped, and the next
// request can be received.
func TestRepGone(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	rep := bind(t, NewRep, Options{Monitor: seen.Tell})
	gone := dialRaw(t, rep.LastEndpoint()).Greet("REQ", nil)
	gone.Send(wire("", "request"))
	_, err := rep.Recv(ctx)
	must(t, err)
	gone.Conn.Close()
	seen.Await(t, EventDisconnected)
	must(t, rep.Send(ctx, []byte("reply to nobody")))
	req := open(t, NewReq, Options{})
	must(t, req.Connect(rep.LastEndpoint()))
	must(t, req.Send(ctx, []byte("next")))
	wants(t, rep, "next")
}

// TestRepNeverWaits: a peer that does not take its replies loses them, and does not hold
// up others.
func TestRepNeverWaits(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	rep := bind(t, NewRep, Options{SendHWM: 1, Linger: LingerNone})
	r := dialRaw(t, rep.LastEndpoint()).Greet("DEALER", nil)
	const n = 4
	for range n {
		r.Send(wire("", "request"))
	}
	for range n {
		_, err := rep.Recv(ctx)
		must(t, err)
		must(t, rep.Send(ctx, plug))
	}
	if p := rep.Peers()[0]; p.Drops == 0 {
		t.Errorf("nothing was dropped: %+v", p)
	}
}

// TestRepConcurrent: goroutines that share a REP take turns; every request is
// answered once, by the goroutine that has received it.
func TestRepConcurrent(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	rep := bind(t, NewRep, Options{})
	var servers, clients sync.WaitGroup
	for range 4 {
		servers.Go(func() {
			for {
				m, err := rep.Recv(ctx)
				switch {
				case errors.Is(err, ErrState):
					runtime.Gosched() // another one is at it
					continue
				case err != nil:
					return
				}
				if err := rep.Send(ctx, m...); err != nil {
					t.Errorf("the reply to %q: %v", m, err)
				}
			}
		})
	}
	for c := range 3 {
		req := open(t, NewReq, Options{})
		must(t, req.Connect(rep.LastEndpoint()))
		clients.Go(func() {
			for i := range 100 {
				body := fmt.Append(nil, c, "/", i)
				if err := req.Send(ctx, body); err != nil {
					t.Error(err)
				}
				if m, err := req.Recv(ctx); err != nil || string(m[0]) != string(body) {
					t.Errorf("%q in reply to %q, %v", m, body, err)
				}
			}
		})
	}
	clients.Wait()
	must(t, rep.Close())
	servers.Wait()
}
