package sockets

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"clustermap/zmtp"
)

// TestLibzmq_spec_req_round_robin_out: each request goes to the next REP.
func TestLibzmq_spec_req_round_robin_out(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	req := open(t, NewReq, Options{})
	const services = 3
	var reps []*Rep
	for range services {
		reps = append(reps, bind(t, NewRep, Options{}))
		must(t, req.Connect(reps[len(reps)-1].LastEndpoint()))
	}
	for i := range 3 * services {
		must(t, req.Send(ctx, []byte("request"), fmt.Append(nil, i)))
		rep := reps[i%services]
		m, err := rep.Recv(ctx)
		must(t, err)
		if fmt.Sprint(texts(m)) != fmt.Sprintf("[request %d]", i) {
			t.Fatalf("%q", m)
		}
		must(t, rep.Send(ctx, []byte("reply"), fmt.Append(nil, i)))
		m, err = req.Recv(ctx)
		must(t, err)
		if fmt.Sprint(texts(m)) != fmt.Sprintf("[reply %d]", i) {
			t.Fatalf("%q", m)
		}
	}
}

// TestLibzmq_spec_req_message_format: an empty frame, and then the body.
func TestLibzmq_spec_req_message_format(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	req := bind(t, NewReq, Options{})
	r := dialRaw(t, req.LastEndpoint()).Greet("REP", nil)
	must(t, req.Send(ctx, []byte("ABC"), []byte("DEF")))
	if m := r.Message(); fmt.Sprint(texts(m)) != "[ ABC DEF]" {
		t.Errorf("%q", m)
	}
	r.Send(wire("", "GHI", "", "JKL"))
	m, err := req.Recv(ctx)
	must(t, err)
	if fmt.Sprintf("%q", texts(m)) != `["GHI" "" "JKL"]` {
		t.Errorf("%q", m)
	}
}

// TestLibzmq_spec_req_block_on_send_no_peers: without a peer Send waits, and no request
// has been sent.
func TestLibzmq_spec_req_block_on_send_no_peers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	req := open(t, NewReq, Options{SendTimeout: time.Millisecond})
	if err := req.TrySend([]byte("x")); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("TrySend: %v", err)
	}
	if err := req.Send(ctx, []byte("x")); !errors.Is(err, ErrTimeout) {
		t.Errorf("Send: %v", err)
	}
	if _, err := req.Recv(ctx); !errors.Is(err, ErrState) {
		t.Errorf("Recv: %v", err)
	}
}

// TestLibzmq_spec_req_only_listens_to_current_peer: messages of others are not received,
// even if they are well-formed.
func TestLibzmq_spec_req_only_listens_to_current_peer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	req := bind(t, NewReq, Options{})
	var peers []*raw
	for i := range 3 {
		peers = append(peers, dialRaw(t, req.LastEndpoint()).Greet("ROUTER", nil))
		eventually(t, "it is there", func() bool { return len(req.Peers()) == i+1 && req.balancer.HasRoom() })
		peers[i].Sync()
	}
	for turn := range 6 {
		must(t, req.Send(ctx, []byte("request")))
		asked := turn % 3
		for i, r := range peers {
			if i != asked {
				r.Send(wire("", "wrong"))
			}
		}
		eventually(t, "wrong replies have come", func() bool { return pending(req.Peers()) == 2 })
		if m, err := req.TryRecv(); !errors.Is(err, ErrWouldBlock) {
			t.Fatalf("%q, %v", m, err)
		}
		peers[asked].Message()
		peers[asked].Send(wire("", "right"))
		m, err := req.Recv(ctx)
		must(t, err)
		if fmt.Sprint(texts(m)) != "[right]" {
			t.Fatalf("%q", m)
		}
	}
	total := uint64(0)
	for _, p := range req.Peers() {
		total += p.Discarded
	}
	if total != 12 {
		t.Errorf("%d messages were thrown away, want 12", total)
	}
}

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

// TestLibzmq_req_correlate: a reply with another number, or none, is not for
// this request.
func TestLibzmq_req_correlate(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	req := bind(t, NewReq, Options{ReqCorrelate: true})
	r := dialRaw(t, req.LastEndpoint()).Greet("ROUTER", nil)
	var last []byte
	for range 3 {
		must(t, req.Send(ctx, []byte("ABC"), []byte("DEF")))
		m := r.Message()
		if len(m) != 4 || len(m[0]) != 4 || len(m[1]) != 0 || string(m[2]) != "ABC" || bytes.Equal(m[0], last) {
			t.Fatalf("%q", m)
		}
		wrong := bytes.Clone(m[0])
		wrong[1]++
		r.Send(wire(string(wrong), "", "wrong number"), wire("", "no number"), wire(string(m[0]), "", "right"))
		reply, err := req.Recv(ctx)
		must(t, err)
		if fmt.Sprint(texts(reply)) != "[right]" {
			t.Fatalf("%q", reply)
		}
		last = m[0]
	}
}

// TestLibzmq_req_relaxed: another request may be sent at any time; the replies to
// the former ones are told apart, and the connections stay.
func TestLibzmq_req_relaxed(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	req := bind(t, NewReq, Options{ReqRelaxed: true, ReqCorrelate: true, Monitor: seen.Tell})
	var peers []*raw
	for range 2 {
		peers = append(peers, dialRaw(t, req.LastEndpoint()).Greet("ROUTER", nil))
		peers[len(peers)-1].Sync()
	}
	// The first request's reply is late, the second's comes.
	must(t, req.Send(ctx, []byte("A")))
	must(t, req.Send(ctx, []byte("B")))
	a, b := peers[0].Message(), peers[1].Message()
	peers[0].Send(wire(string(a[0]), "", "late"))
	eventually(t, "the late reply has come", func() bool { return pending(req.Peers()) == 1 })
	peers[1].Send(wire(string(b[0]), "", "reply to B"))
	m, err := req.Recv(ctx)
	must(t, err)
	if fmt.Sprint(texts(m)) != "[reply to B]" {
		t.Errorf("%q", m)
	}
	// A reply that waits to be received is forgotten with its request.
	must(t, req.Send(ctx, []byte("C")))
	c := peers[0].Message()
	peers[0].Send(wire(string(c[0]), "", "reply to C"))
	eventually(t, "the reply has come", func() bool { return pending(req.Peers()) == 1 })
	must(t, req.Send(ctx, []byte("D")))
	if m, err := req.TryRecv(); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("%q, %v", m, err)
	}
	d := peers[1].Message()
	peers[1].Send(wire(string(d[0]), "", "reply to D"))
	m, err = req.Recv(ctx)
	must(t, err)
	if fmt.Sprint(texts(m)) != "[reply to D]" {
		t.Errorf("%q", m)
	}
	if n := seen.Count(EventDisconnected); n != 0 {
		t.Errorf("%d connections were lost", n)
	}
}

// TestLibzmq_invalid_rep: over a network, a peer that sends a message that cannot be a
// reply is disconnected. Since the peer that was asked has gone, any other may answer.
func TestLibzmq_invalid_rep(t *testing.T) {
	t.Parallel()
	for _, bad := range [][]byte{
		wire("no delimiter"), wire("no", "delimiter"), wire(""), wire("four", "no"), wire("four", ""), wire("four"),
	} {
		t.Run(fmt.Sprintf("%q", bad), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			seen := newEvents()
			req := bind(t, NewReq, Options{Monitor: seen.Tell})
			first := dialRaw(t, req.LastEndpoint()).Greet("ROUTER", nil)
			first.Sync()
			second := dialRaw(t, req.LastEndpoint()).Greet("ROUTER", nil)
			must(t, req.Send(ctx, []byte("request")))
			first.Message()
			first.Send(bad)
			first.Ended()
			if e := seen.Await(t, EventDisconnected); !errors.Is(e.Err, zmtp.ErrMalformed) {
				t.Errorf("%v", e.Err)
			}
			second.Send(wire("", "reply"))
			m, err := req.Recv(ctx)
			must(t, err)
			if fmt.Sprint(texts(m)) != "[reply]" {
				t.Errorf("%q", m)
			}
		})
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
	m, err := req.Recv(ctx)
	must(t, err)
	if fmt.Sprint(texts(m)) != "[reply]" {
		t.Errorf("%q", m)
	}
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
	m, err := req.Recv(ctx)
	must(t, err)
	if fmt.Sprint(texts(m)) != "[reply of another]" {
		t.Errorf("%q", m)
	}
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
