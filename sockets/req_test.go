package sockets

import (
	"errors"
	"fmt"
	"testing"
)

// TestReqStates: out of turn every call is refused, and changes nothing.
func TestReqStates(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	rep := bind(t, NewRep, Options{})
	req := open(t, NewReq, Options{})
	must(t, req.Connect(rep.LastEndpoint()))
	var b Batch
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ErrState) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for range 3 {
		_, err := req.Recv(ctx)
		refused("Recv before Send", err)
		_, err = req.TryRecv()
		refused("TryRecv before Send", err)
		refused("RecvBatch before Send", req.RecvBatch(ctx, &b))
		refused("REP's Send before Recv", rep.Send(ctx, []byte("x")))
		refused("REP's TrySend before Recv", rep.TrySend([]byte("x")))
		must(t, req.Send(ctx, []byte("request")))
		refused("Send before Recv", req.Send(ctx, []byte("x")))
		refused("TrySend before Recv", req.TrySend([]byte("x")))
		_, err = rep.Recv(ctx)
		must(t, err)
		_, err = rep.Recv(ctx)
		refused("REP's Recv before Send", err)
		refused("REP's RecvBatch before Send", rep.RecvBatch(ctx, &b))
		must(t, rep.Send(ctx, []byte("reply")))
		must(t, req.RecvBatch(ctx, &b))
		if body, rest := b.Message(0).Next(); b.Len() != 1 || string(body) != "reply" || len(rest) != 0 {
			t.Errorf("%q", b.Message(0))
		}
	}
	b.Release()
	// A context that has ended leaves the request waiting.
	must(t, req.Send(ctx, []byte("request")))
	if _, err := req.Recv(ended()); err == nil {
		t.Error("a reply that nobody has sent")
	}
	_, err := rep.Recv(ctx)
	must(t, err)
	must(t, rep.Send(ctx, []byte("reply")))
	_, err = req.Recv(ctx)
	must(t, err)
	must(t, req.Close())
	if _, err := req.Recv(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestReqGoodBeforeBad: a reply counts even if the message after it ends the connection.
func TestReqGoodBeforeBad(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	req := bind(t, NewReq, Options{})
	r := dialRaw(t, req.LastEndpoint()).Greet("ROUTER", nil)
	must(t, req.Send(ctx, []byte("request")))
	r.Message()
	r.Send(append(wire("", "reply"), wire("bad")...))
	r.Ended()
	wants(t, req, "reply")
}

// TestReqReconnect: a strict REQ goes on waiting for the endpoint that it asked,
// over the loss of the connection; a relaxed one can ask again.
func TestReqReconnect(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	endpoint, accept := listenRaw(t)
	seen := newEvents()
	req := open(t, NewReq, quick(Options{ReqRelaxed: true, Monitor: seen.Tell, Linger: LingerNone}))
	must(t, req.Connect(endpoint))
	must(t, req.Send(ctx, []byte("lost")))
	first := accept().Greet("REP", nil)
	first.Message()
	first.Conn.Close()
	seen.Await(t, EventDisconnected)
	second := accept().Greet("REP", nil)
	seen.Await(t, EventHandshakeSucceeded)
	if m, err := req.TryRecv(); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("%q, %v", m, err)
	}
	must(t, req.Send(ctx, []byte("again")))
	if m := second.Message(); fmt.Sprint(texts(m)) != "[ again]" {
		t.Errorf("%q", m)
	}
	second.Send(wire("", "reply"))
	_, err := req.Recv(ctx)
	must(t, err)
}

// TestReqImmediate: with Immediate the loss of the connection frees the REQ from
// waiting for that peer alone.
func TestReqImmediate(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	endpoint, accept := listenRaw(t)
	seen := newEvents()
	req := open(t, NewReq, quick(Options{Immediate: true, Monitor: seen.Tell, Linger: LingerNone}))
	must(t, req.Connect(endpoint))
	if err := req.TrySend([]byte("early")); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("before the connection: %v", err)
	}
	first := accept().Greet("ROUTER", nil)
	must(t, req.Send(ctx, []byte("request")))
	first.Message()
	first.Conn.Close()
	seen.Await(t, EventDisconnected)
	second := accept().Greet("ROUTER", nil)
	second.Send(wire("", "reply of another"))
	wants(t, req, "reply of another")
}

func TestAllocReqRep(t *testing.T) {
	ctx := testContext(t)
	rep := bind(t, NewRep, Options{})
	req := open(t, NewReq, Options{ReqCorrelate: true})
	must(t, req.Connect(rep.LastEndpoint()))
	var a, b Batch
	defer a.Release()
	defer b.Release()
	noAllocs(t, "a request and its reply", func() {
		must(t, req.Send(ctx, payload...))
		must(t, rep.RecvBatch(ctx, &a))
		must(t, rep.Send(ctx, payload...))
		must(t, req.RecvBatch(ctx, &b))
	})
}
