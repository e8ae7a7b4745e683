package sockets

import (
	"errors"
	"fmt"
	"testing"
)

// TestInprocReqRep: many exchanges, with several repliers in turn.
func TestInprocReqRep(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := inprocOptions()
	correlated := o
	correlated.ReqCorrelate = true
	req := open(t, NewReq, correlated)
	var reps []*Rep
	for i := range 3 {
		rep := open(t, NewRep, o)
		must(t, req.Connect(fmt.Sprint("inproc://", i)))
		must(t, rep.Bind(ctx, fmt.Sprint("inproc://", i)))
		reps = append(reps, rep)
	}
	for i := range 300 {
		must(t, req.Send(ctx, fmt.Append(nil, i)))
		rep := reps[i%3]
		m, err := rep.Recv(ctx)
		must(t, err)
		must(t, rep.Send(ctx, m[0], []byte("yes")))
		m, err = req.Recv(ctx)
		must(t, err)
		if got := fmt.Sprint(texts(m)); got != fmt.Sprintf("[%d yes]", i) {
			t.Fatal(got)
		}
	}
}

// TestInprocReqSkips: an invalid reply is passed over, and messages that came before the
// request are dropped, fetched or not (libzmq's test_invalid_rep).
func TestInprocReqSkips(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := inprocOptions()
	req := open(t, NewReq, o)
	o.SendHWM, o.RecvHWM = 5, 5
	router := open(t, NewRouter, o)
	must(t, router.Bind(ctx, "inproc://a"))
	must(t, req.Connect("inproc://a"))
	must(t, req.Send(ctx, []byte("first")))
	m, err := router.Recv(ctx)
	must(t, err)
	me := m[0]
	for round := range 20 {
		must(t, router.Send(ctx, me, []byte("no delimiter")))
		must(t, router.Send(ctx, me, nil, fmt.Append(nil, round)))
		must(t, router.Send(ctx, me, nil, []byte("twice")))
		m, err = req.Recv(ctx)
		must(t, err)
		if string(m[0]) != fmt.Sprint(round) {
			t.Fatalf("%q in round %d", m, round)
		}
		must(t, router.Send(ctx, me, nil, []byte("late")))
		must(t, req.Send(ctx, []byte("next")))
		_, err = router.Recv(ctx)
		must(t, err)
	}
	if _, err := req.TryRecv(); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("a reply to the last request: %v", err)
	}
	if p := req.Peers()[0]; p.Discarded != 60 {
		t.Errorf("%+v", p)
	}
}

// TestInprocXPubXSub: subscriptions come up as messages, and go when the
// subscriber does (libzmq's test_disconnect_inproc).
func TestInprocXPubXSub(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := inprocOptions()
	xpub := open(t, NewXPub, o)
	must(t, xpub.Bind(ctx, "inproc://a"))
	xsub := open(t, NewXSub, o)
	must(t, xsub.Connect("inproc://a"))
	must(t, xsub.Send(ctx, []byte("\x01topic")))
	must(t, xsub.Send(ctx, []byte("hello")))
	want := func(text string) {
		t.Helper()
		wants(t, xpub, text)
	}
	want("\x01topic")
	want("hello")
	must(t, xpub.Send(ctx, []byte("topic 1")))
	wants(t, xsub, "topic 1")
	sub := open(t, NewSub, o)
	must(t, sub.Subscribe("other"))
	must(t, sub.Connect("inproc://a"))
	want("\x01other")
	must(t, sub.Disconnect("inproc://a"))
	want("\x00other")
	must(t, xsub.Close())
	want("\x00topic")
}

// TestInprocHello: the messages that come by themselves.
func TestInprocHello(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := inprocOptions()
	o.HelloMessage, o.DisconnectMessage = []byte("hello"), []byte("gone")
	router := open(t, NewRouter, o)
	must(t, router.Bind(ctx, "inproc://a"))
	dealer := open(t, NewDealer, Options{Inproc: o.Inproc, Identity: []byte("me"), HelloMessage: []byte("hi")})
	must(t, dealer.Connect("inproc://a"))
	must(t, dealer.Send(ctx, []byte("x")))
	wants(t, dealer, "hello")
	must(t, dealer.Disconnect("inproc://a"))
	for _, want := range []string{"[me hi]", "[me x]", "[me gone]"} {
		m, err := router.Recv(ctx)
		must(t, err)
		if got := fmt.Sprint(texts(m)); got != want {
			t.Errorf("%s instead of %s", got, want)
		}
	}
}
