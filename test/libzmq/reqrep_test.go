package libzmq

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// TestLibzmq_spec_rep_fair_queue_in: REQs are served in turn.
func TestLibzmq_spec_rep_fair_queue_in(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	rep := bind(t, sockets.NewRep, sockets.Options{})
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
	rep := bind(t, sockets.NewRep, sockets.Options{})
	r := dialRaw(t, rep.LastEndpoint()).Greet("DEALER", nil)
	long := strings.Repeat("x", 300)
	for _, envelope := range [][]string{
		{""}, {"A", ""}, {"A", "B", "C", ""}, {long, "\x00\x01", ""}, {strings.Repeat("y", 8<<10), ""},
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
}

// TestLibzmq_reqrep_tcp: several REQs at one REP, and one that knows it under
// two names.
func TestLibzmq_reqrep_tcp(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	rep := bind(t, sockets.NewRep, sockets.Options{})
	const clients, each = 4, 50
	var wg sync.WaitGroup
	for c := range clients {
		req := open(t, sockets.NewReq, sockets.Options{})
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
	front := bind(t, sockets.NewRouter, sockets.Options{})
	back := bind(t, sockets.NewDealer, sockets.Options{})
	req := open(t, sockets.NewReq, sockets.Options{ReqCorrelate: true})
	must(t, req.Connect(front.LastEndpoint()))
	rep := open(t, sockets.NewRep, sockets.Options{})
	must(t, rep.Connect(back.LastEndpoint()))
	for range 10 {
		must(t, req.Send(ctx, []byte("ABC"), []byte("DEF")))
		m, err := front.Recv(ctx)
		must(t, err)
		must(t, back.Send(ctx, m...))
		wants(t, rep, "ABC DEF")
		must(t, rep.Send(ctx, []byte("GHI"), []byte("JKL")))
		m, err = back.Recv(ctx)
		must(t, err)
		must(t, front.Send(ctx, m...))
		wants(t, req, "GHI JKL")
	}
}

// TestLibzmq_spec_req_round_robin_out: each request goes to the next REP.
func TestLibzmq_spec_req_round_robin_out(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	req := open(t, sockets.NewReq, sockets.Options{})
	const services = 3
	var reps []*sockets.Rep
	for range services {
		reps = append(reps, bind(t, sockets.NewRep, sockets.Options{}))
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
	req := bind(t, sockets.NewReq, sockets.Options{})
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
	req := open(t, sockets.NewReq, sockets.Options{SendTimeout: time.Millisecond})
	if err := req.TrySend([]byte("x")); !errors.Is(err, sockets.ErrWouldBlock) {
		t.Errorf("TrySend: %v", err)
	}
	if err := req.Send(ctx, []byte("x")); !errors.Is(err, sockets.ErrTimeout) {
		t.Errorf("Send: %v", err)
	}
	if _, err := req.Recv(ctx); !errors.Is(err, sockets.ErrState) {
		t.Errorf("Recv: %v", err)
	}
}

// TestLibzmq_spec_req_only_listens_to_current_peer: messages of others are not received,
// even if they are well-formed.
func TestLibzmq_spec_req_only_listens_to_current_peer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	req := bind(t, sockets.NewReq, sockets.Options{})
	var peers []*raw
	for i := range 3 {
		peers = append(peers, dialRaw(t, req.LastEndpoint()).Greet("ROUTER", nil))
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
		if m, err := req.TryRecv(); !errors.Is(err, sockets.ErrWouldBlock) {
			t.Fatalf("%q, %v", m, err)
		}
		peers[asked].Message()
		peers[asked].Send(wire("", "right"))
		wants(t, req, "right")
	}
	total := uint64(0)
	for _, p := range req.Peers() {
		total += p.Discarded
	}
	if total != 12 {
		t.Errorf("%d messages were thrown away, want 12", total)
	}
}

// TestLibzmq_req_correlate: a reply with another number, or none, is not for
// this request.
func TestLibzmq_req_correlate(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	req := bind(t, sockets.NewReq, sockets.Options{ReqCorrelate: true})
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
	req := bind(t, sockets.NewReq, sockets.Options{ReqRelaxed: true, ReqCorrelate: true, Monitor: seen.Tell})
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
	wants(t, req, "reply to B")
	// A reply that waits to be received is forgotten with its request.
	must(t, req.Send(ctx, []byte("C")))
	c := peers[0].Message()
	peers[0].Send(wire(string(c[0]), "", "reply to C"))
	eventually(t, "the reply has come", func() bool { return pending(req.Peers()) == 1 })
	must(t, req.Send(ctx, []byte("D")))
	if m, err := req.TryRecv(); !errors.Is(err, sockets.ErrWouldBlock) {
		t.Errorf("%q, %v", m, err)
	}
	d := peers[1].Message()
	peers[1].Send(wire(string(d[0]), "", "reply to D"))
	wants(t, req, "reply to D")
	if n := seen.Count(sockets.EventDisconnected); n != 0 {
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
			req := bind(t, sockets.NewReq, sockets.Options{Monitor: seen.Tell})
			first := dialRaw(t, req.LastEndpoint()).Greet("ROUTER", nil)
			first.Sync()
			second := dialRaw(t, req.LastEndpoint()).Greet("ROUTER", nil)
			must(t, req.Send(ctx, []byte("request")))
			first.Message()
			first.Send(bad)
			first.Ended()
			if e := seen.Await(t, sockets.EventDisconnected); !errors.Is(e.Err, zmtp.ErrMalformed) {
				t.Errorf("%v", e.Err)
			}
			second.Send(wire("", "reply"))
			wants(t, req, "reply")
		})
	}
}
