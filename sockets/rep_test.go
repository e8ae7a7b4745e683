package sockets

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// TestLibzmq_spec_rep_fair_queue_in: REQs are served in turn.
func TestLibzmq_spec_rep_fair_queue_in(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	rep := bind(t, NewRep, Options{})
	const peers, each = 4, 3
	var dealers []*raw
	for i := range peers {
		r := dialRaw(t, rep.LastEndpoint()).Greet("DEALER", nil)
		for range each {
			r.Send(wire("", fmt.Sprint(i)))
		}
		dealers = append(dealers, r)
	}
	eventually(t, "all has come", func() bool { return pending(rep.Peers()) == peers*each })
	for range each {
		turn := map[string]bool{}
		for range peers {
			m, err := rep.TryRecv()
			must(t, err)
			turn[string(m[0])] = true
			must(t, rep.Send(ctx, m...))
		}
		if len(turn) != peers {
			t.Errorf("one turn had only %v", turn)
		}
	}
	for i, r := range dealers {
		for range each {
			if m := r.Message(); len(m) != 2 || string(m[1]) != fmt.Sprint(i) {
				t.Errorf("%d got %q", i, m)
			}
		}
	}
}

// TestLibzmq_spec_rep_envelope: all frames before the body come back, up to the first
// empty frame.
func TestLibzmq_spec_rep_envelope(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	rep := bind(t, NewRep, Options{})
	r := dialRaw(t, rep.LastEndpoint()).Greet("DEALER", nil)
	long := strings.Repeat("x", 300)
	for _, envelope := range [][]string{
		{""}, {"A", ""}, {"A", "B", "C", ""}, {long, "\x00\x01", ""}, {strings.Repeat("y", 2*keepEnvelope), ""},
	} {
		r.Send(wire(append(envelope, "", "request", "")...))
		m, err := rep.Recv(ctx)
		must(t, err)
		if fmt.Sprintf("%q", texts(m)) != `["" "request" ""]` {
			t.Fatalf("%q", m)
		}
		must(t, rep.Send(ctx, []byte("reply"), nil))
		if got, want := fmt.Sprintf("%q", texts(r.Message())), fmt.Sprintf("%q", append(envelope, "reply", "")); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
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
	m, err := rep.Recv(ctx)
	must(t, err)
	if fmt.Sprint(texts(m)) != "[good]" {
		t.Errorf("%q", m)
	}
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
	m, err := rep.Recv(ctx)
	must(t, err)
	if fmt.Sprint(texts(m)) != "[next]" {
		t.Errorf("%q", m)
	}
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

// TestLibzmq_reqrep_tcp: several REQs at one REP, and one that knows it under
// two names.
func TestLibzmq_reqrep_tcp(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	rep := bind(t, NewRep, Options{})
	const clients, each = 4, 50
	var wg sync.WaitGroup
	for c := range clients {
		req := open(t, NewReq, Options{})
		must(t, req.Connect(rep.LastEndpoint()))
		if c == 0 {
			must(t, req.Connect(strings.Replace(rep.LastEndpoint(), "127.0.0.1", "localhost", 1)))
		}
		wg.Go(func() {
			for i := range each {
				body := fmt.Append(nil, c, "/", i)
				if err := req.Send(ctx, body, nil); err != nil {
					t.Error(err)
					return
				}
				m, err := req.Recv(ctx)
				if err != nil || len(m) != 2 || string(m[0]) != string(body) {
					t.Errorf("%q in reply to %q, %v", m, body, err)
				}
			}
		})
	}
	for range clients * each {
		m, err := rep.Recv(ctx)
		must(t, err)
		must(t, rep.Send(ctx, m...))
	}
	wg.Wait()
}

// TestLibzmq_reqrep_device: REQ to ROUTER, DEALER to REP, and all the way back.
func TestLibzmq_reqrep_device(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	front := bind(t, NewRouter, Options{})
	back := bind(t, NewDealer, Options{})
	req := open(t, NewReq, Options{ReqCorrelate: true})
	must(t, req.Connect(front.LastEndpoint()))
	rep := open(t, NewRep, Options{})
	must(t, rep.Connect(back.LastEndpoint()))
	for range 10 {
		must(t, req.Send(ctx, []byte("ABC"), []byte("DEF")))
		m, err := front.Recv(ctx)
		must(t, err)
		must(t, back.Send(ctx, m...))
		m, err = rep.Recv(ctx)
		must(t, err)
		if fmt.Sprint(texts(m)) != "[ABC DEF]" {
			t.Fatalf("%q", m)
		}
		must(t, rep.Send(ctx, []byte("GHI"), []byte("JKL")))
		m, err = back.Recv(ctx)
		must(t, err)
		must(t, front.Send(ctx, m...))
		m, err = req.Recv(ctx)
		must(t, err)
		if fmt.Sprint(texts(m)) != "[GHI JKL]" {
			t.Fatalf("%q", m)
		}
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
