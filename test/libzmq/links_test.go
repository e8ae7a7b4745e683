package libzmq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// Assertions of libzmq's programs that are the same for several transports, types of
// sockets and sides: a row of docs/CONFORMANCE.md names those that it needs.

// talker is a socket that sends and receives.
type talker interface {
	sockets.Socket
	Send(context.Context, ...[]byte) error
	TrySend(...[]byte) error
	Recv(context.Context) (sockets.Message, error)
	TryRecv() (sockets.Message, error)
	Bind(context.Context, string) error
	Unbind(string) error
	Connect(string) error
	Disconnect(string) error
	Peers() []sockets.PeerStats
	Close() error
}

// talkers makes a type of socket.
func talkers[S talker](create func(sockets.Options) (S, error)) func(testing.TB, sockets.Options) talker {
	return func(t testing.TB, o sockets.Options) talker { return open(t, create, o) }
}

// bounced sends two frames to the bound socket and back, which libzmq's programs do to
// see that there is a connection.
func bounced(t *testing.T, bound, connected talker) {
	t.Helper()
	ctx := testContext(t)
	const content = "12345678ABCDEFGH12345678abcdefgh"
	must(t, connected.Send(ctx, []byte(content), []byte(content)))
	wantRecv(t, func() (sockets.Message, error) { return bound.Recv(ctx) }, content, content)
	must(t, bound.Send(ctx, []byte(content), []byte(content)))
	wantRecv(t, func() (sockets.Message, error) { return connected.Recv(ctx) }, content, content)
}

// TestLibzmq_bounce: each pair of types that answer each other has a connection over each
// transport, by the endpoint that LastEndpoint returns, and Disconnect and Unbind take it.
func TestLibzmq_bounce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		endpoint string
		ipv6     bool
		connect  func(string) string
	}{
		"IPv4":                    {endpoint: "tcp://127.0.0.1:*"},
		"IPv4 by name":            {endpoint: "tcp://127.0.0.1:*", connect: func(e string) string { return strings.Replace(e, "127.0.0.1", "localhost", 1) }},
		"IPv4, IPv6 is on":        {endpoint: "tcp://127.0.0.1:*", ipv6: true},
		"IPv6":                    {endpoint: "tcp://[::1]:*", ipv6: true},
		"any address":             {endpoint: "tcp://*:*"},
		"any address, IPv6 is on": {endpoint: "tcp://*:*", ipv6: true},
		"ipc":                     {endpoint: "ipc://*"},
		"inproc":                  {endpoint: "inproc://a"},
	} {
		for types, create := range map[string][2]func(testing.TB, sockets.Options) talker{
			"REP REQ":       {talkers(sockets.NewRep), talkers(sockets.NewReq)},
			"PAIR PAIR":     {talkers(sockets.NewPair), talkers(sockets.NewPair)},
			"DEALER DEALER": {talkers(sockets.NewDealer), talkers(sockets.NewDealer)},
		} {
			t.Run(types+" "+name, func(t *testing.T) {
				t.Parallel()
				if c.ipv6 {
					hasIPv6(t)
				}
				o := sockets.Options{Inproc: new(sockets.Inproc), IPv6: c.ipv6}
				bound, connected := create[0](t, o), create[1](t, o)
				must(t, bound.Bind(testContext(t), c.endpoint))
				at := bound.LastEndpoint()
				endpoint := at
				if c.connect != nil {
					endpoint = c.connect(at)
				}
				must(t, connected.Connect(endpoint))
				bounced(t, bound, connected)
				must(t, connected.Disconnect(endpoint))
				must(t, bound.Unbind(at))
			})
		}
	}
}

// TestLibzmq_reqrep_multi: a REQ asks the REPs that it is connected to in the order of
// its Connect calls; and two REQs use the same two source ports, each for another REP.
func TestLibzmq_reqrep_multi(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"127.0.0.1", "[::1]"} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			if host == "[::1]" {
				hasIPv6(t)
			}
			o := sockets.Options{IPv6: host == "[::1]"}
			var reps []talker
			for range 3 {
				rep := open(t, sockets.NewRep, o)
				must(t, rep.Bind(testContext(t), "tcp://"+host+":*"))
				reps = append(reps, rep)
			}
			// from is an endpoint with a source address.
			from := func(port string, rep talker) string {
				return "tcp://" + host + ":" + port + ";" + strings.TrimPrefix(rep.LastEndpoint(), "tcp://")
			}
			ends := func(req talker, endpoints ...string) {
				t.Helper()
				for _, e := range endpoints {
					must(t, req.Disconnect(e))
				}
			}
			req := open(t, sockets.NewReq, quick(o))
			endpoints := []string{reps[0].LastEndpoint(), reps[1].LastEndpoint(), from(sourcePort(t), reps[2])}
			for _, e := range endpoints {
				must(t, req.Connect(e))
			}
			for i := range 7 {
				bounced(t, reps[i%3], req)
			}
			ends(req, endpoints[0], endpoints[2], endpoints[1])

			if testenv.Portable {
				return // two connections share a source port only with the code for this system
			}
			a, b := sourcePort(t), sourcePort(t)
			one, two := open(t, sockets.NewReq, quick(o)), open(t, sockets.NewReq, quick(o))
			ones := []string{from(a, reps[0]), from(b, reps[1])}
			twos := []string{from(b, reps[0]), from(a, reps[1])}
			for i := range 2 {
				must(t, one.Connect(ones[i]))
				must(t, two.Connect(twos[i]))
			}
			for _, req := range []talker{one, two, one} {
				bounced(t, reps[0], req)
				bounced(t, reps[1], req)
			}
			ends(two, twos...)
			ends(one, ones...)
			for _, rep := range reps {
				must(t, rep.Unbind(rep.LastEndpoint()))
			}
		})
	}
}

// overTransports runs a test over tcp and inproc, as most of libzmq's programs do.
func overTransports(t *testing.T, f func(t *testing.T, o sockets.Options, endpoint string)) {
	t.Helper()
	for _, endpoint := range []string{"tcp://127.0.0.1:*", "inproc://a"} {
		name, _, _ := strings.Cut(endpoint, ":")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, sockets.Options{Inproc: new(sockets.Inproc), Linger: sockets.LingerNone}, endpoint)
		})
	}
}

// TestLibzmq_spec_bound_round_robin: a bound REQ, DEALER or PUSH has something for each of
// five peers that are there, in the order in which they came.
func TestLibzmq_spec_bound_round_robin(t *testing.T) {
	t.Parallel()
	overTransports(t, func(t *testing.T, o sockets.Options, endpoint string) {
		ctx := testContext(t)
		const peers = 5
		push, dealer, req := open(t, sockets.NewPush, o), open(t, sockets.NewDealer, o), open(t, sockets.NewReq, o)
		must(t, push.Bind(ctx, endpoint))
		must(t, dealer.Bind(ctx, strings.Replace(endpoint, "//a", "//b", 1)))
		must(t, req.Bind(ctx, strings.Replace(endpoint, "//a", "//c", 1)))
		var pulls []*sockets.Pull
		var served, asked []*sockets.Rep
		for i := range peers {
			pulls = append(pulls, dialled(t, sockets.NewPull, o, push.LastEndpoint()))
			served = append(served, dialled(t, sockets.NewRep, o, dealer.LastEndpoint()))
			asked = append(asked, dialled(t, sockets.NewRep, o, req.LastEndpoint()))
			eventually(t, "they have come", func() bool {
				return len(push.Peers()) == i+1 && len(dealer.Peers()) == i+1 && len(req.Peers()) == i+1
			})
		}
		for range peers {
			must(t, push.Send(ctx, []byte("ABC")))
			must(t, dealer.Send(ctx, nil, []byte("ABC")))
		}
		for range peers {
			must(t, push.Send(ctx, []byte("DEF")))
		}
		for i := range peers {
			wants(t, pulls[i], "ABC", "DEF")
			wants(t, served[i], "ABC")
			must(t, req.Send(ctx, []byte("ABC")))
			wants(t, asked[i], "ABC")
			must(t, asked[i].Send(ctx, []byte("DEF")))
			wants(t, req, "DEF")
		}
	})
}

// TestLibzmq_spec_fair_queue: a bound PULL, DEALER, ROUTER or REP receives one message of
// each of its peers before the second of any.
func TestLibzmq_spec_fair_queue(t *testing.T) {
	t.Parallel()
	overTransports(t, func(t *testing.T, o sockets.Options, endpoint string) {
		const peers = 5
		for name, c := range map[string]struct {
			to, from func(testing.TB, sockets.Options) talker
		}{
			"DEALER": {talkers(sockets.NewDealer), talkers(sockets.NewDealer)},
			"ROUTER": {talkers(sockets.NewRouter), talkers(sockets.NewDealer)},
			"REP":    {talkers(sockets.NewRep), talkers(sockets.NewReq)},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx := testContext(t)
				o := o
				o.Inproc = new(sockets.Inproc)
				to := c.to(t, o)
				must(t, to.Bind(ctx, endpoint))
				var from []talker
				for i := range peers {
					o.Identity = []byte{'A' + byte(i)}
					from = append(from, c.from(t, o))
					must(t, from[i].Connect(to.LastEndpoint()))
				}
				body := func(m sockets.Message) string { return string(m[len(m)-1]) }
				answer := func(m sockets.Message) {
					t.Helper()
					if name == "REP" {
						must(t, to.Send(ctx, m...))
						wants(t, from[body(m)[0]-'A'], body(m))
					}
				}
				for range 2 {
					must(t, from[0].Send(ctx, []byte("A")))
					m, err := to.Recv(ctx)
					must(t, err)
					if body(m) != "A" || name == "ROUTER" && string(m[0]) != "A" {
						t.Errorf("%q", m)
					}
					answer(m)
				}
				each := 5
				if name == "REP" {
					each = 1 // of each REQ
				}
				for i, s := range from {
					for range each {
						must(t, s.Send(ctx, []byte{'A' + byte(i)}))
					}
				}
				if strings.HasPrefix(endpoint, "tcp") { // over inproc it is there when Send returns
					eventually(t, "all has come", func() bool { return pending(to.Peers()) == peers*each })
				}
				for range each {
					turn := map[string]bool{}
					for range peers {
						m, err := to.TryRecv()
						must(t, err)
						turn[body(m)] = true
						answer(m)
					}
					if len(turn) != peers {
						t.Errorf("one turn had only %v", turn)
					}
				}
			})
		}
		t.Run("PULL", func(t *testing.T) {
			t.Parallel()
			o := o
			o.Inproc = new(sockets.Inproc)
			pull := open(t, sockets.NewPull, o)
			must(t, pull.Bind(testContext(t), endpoint))
			for i := range peers {
				says(t, dialled(t, sockets.NewPush, o, pull.LastEndpoint()), fmt.Sprint(i), fmt.Sprint(i+peers))
			}
			if strings.HasPrefix(endpoint, "tcp") {
				eventually(t, "all has come", func() bool { return pending(pull.Peers()) == 2*peers })
			}
			for _, first := range []bool{true, false} {
				turn := map[string]bool{}
				for range peers {
					m, err := pull.TryRecv()
					must(t, err)
					turn[string(m[0])] = true
					if s := string(m[0]); (s < fmt.Sprint(peers)) != first && len(s) == 1 {
						t.Errorf("%s came too early or too late", s)
					}
				}
				if len(turn) != peers {
					t.Errorf("one turn had only %v", turn)
				}
			}
		})
	})
}

// TestLibzmq_spec_rep_inproc: a REP keeps envelopes of one and of three frames.
func TestLibzmq_spec_rep_inproc(t *testing.T) {
	t.Parallel()
	overTransports(t, func(t *testing.T, o sockets.Options, endpoint string) {
		ctx := testContext(t)
		rep := open(t, sockets.NewRep, o)
		must(t, rep.Bind(ctx, endpoint))
		dealer := dialled(t, sockets.NewDealer, o, rep.LastEndpoint())
		for _, envelope := range [][][]byte{{nil}, {[]byte("X"), []byte("Y"), nil}} {
			must(t, dealer.Send(ctx, append(envelope, []byte("A"))...))
			wants(t, rep, "A")
			says(t, rep, "A")
			m, err := dealer.Recv(ctx)
			must(t, err)
			if len(m) != len(envelope)+1 || string(m[len(m)-1]) != "A" || len(m[len(m)-2]) > 0 || len(m) > 2 && string(m[0])+string(m[1]) != "XY" {
				t.Errorf("%q", m)
			}
		}
	})
}

// TestLibzmq_spec_req_inproc: a REQ puts an empty frame before the request, and takes it
// off the reply.
func TestLibzmq_spec_req_inproc(t *testing.T) {
	t.Parallel()
	overTransports(t, func(t *testing.T, o sockets.Options, endpoint string) {
		ctx := testContext(t)
		req := open(t, sockets.NewReq, o)
		must(t, req.Bind(ctx, endpoint))
		router := dialled(t, sockets.NewRouter, o, req.LastEndpoint())
		must(t, req.Send(ctx, []byte("ABC"), []byte("DEF")))
		m, err := router.Recv(ctx)
		must(t, err)
		if len(m) != 4 || len(m[0]) == 0 || len(m[1]) > 0 || string(m[2])+string(m[3]) != "ABCDEF" {
			t.Fatalf("%q", m)
		}
		must(t, router.Send(ctx, m[0], nil, []byte("GHI")))
		wants(t, req, "GHI")
	})
}

// TestLibzmq_spec_pushpull_atomic: of messages of three frames, the last of 16 MiB, each
// comes whole or not at all, though the PULL disconnects while they are on their way and
// comes back.
func TestLibzmq_spec_pushpull_atomic(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{true, false} {
		t.Run(fmt.Sprint("wait ", wait), func(t *testing.T) {
			t.Parallel()
			overTransports(t, func(t *testing.T, o sockets.Options, endpoint string) {
				ctx := testContext(t)
				large := func(name string) []byte { return bytes.Repeat([]byte(name), 16<<20) }
				seen := newEvents()
				to, from := o, o
				to.RecvHWM, from.SendHWM, from.Monitor = 1, 1, seen.Tell
				pull := open(t, sockets.NewPull, to)
				push := open(t, sockets.NewPush, from)
				must(t, push.Bind(ctx, endpoint))
				at := push.LastEndpoint()
				must(t, pull.Connect(at))
				whole := func() (name string) {
					t.Helper()
					m, err := pull.Recv(ctx)
					must(t, err)
					name = string(m[0])
					if len(m) != 3 || string(m[1]) != name || !bytes.Equal(m[2], large(name)) {
						t.Fatalf("%d frames of message %.10q", len(m), name)
					}
					return name
				}
				three := func(name string) [][]byte { return [][]byte{[]byte(name), []byte(name), large(name)} }
				must(t, push.Send(ctx, three("0")...))
				if name := whole(); name != "0" {
					t.Errorf("%s is the first", name)
				}
				must(t, push.Send(ctx, three("1")...))
				must(t, push.Send(ctx, three("2")...))
				must(t, pull.Disconnect(at))
				must(t, pull.Connect(at))
				if wait {
					must(t, push.Send(ctx, three("3")...))
				} else if err := push.TrySend(three("3")...); err != nil && !errors.Is(err, sockets.ErrWouldBlock) {
					t.Error(err)
				}
				seen.Await(t, sockets.EventDisconnected) // a message sent before may be lost
				sent := make(chan error, 1)
				go func() { sent <- push.Send(ctx, three("5")...) }()
				for name := ""; name != "5"; {
					if name = whole(); name != "3" && name != "5" {
						t.Errorf("message %s of the former connection", name)
					}
				}
				must(t, <-sent)
			})
		})
	}
}

// TestLibzmq_invalid_rep_inproc: a reply without a delimiter is skipped, and the next one
// received.
func TestLibzmq_invalid_rep_inproc(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := inprocOptions()
	router, req := open(t, sockets.NewRouter, o), open(t, sockets.NewReq, o)
	must(t, router.Bind(ctx, "inproc://hi"))
	must(t, req.Connect("inproc://hi"))
	says(t, req, "r")
	m, err := router.Recv(ctx)
	must(t, err)
	if len(m) != 3 || len(m[1]) > 0 || string(m[2]) != "r" {
		t.Fatalf("%q", m)
	}
	must(t, router.Send(ctx, m[0], nil)) // an empty frame alone
	must(t, router.Send(ctx, m[0], nil, []byte("b")))
	wants(t, req, "b")
}

// TestLibzmq_req_relaxed_reps: the four cases of libzmq's program: a second request
// before the reply, and with a reply that waits; neither ends a connection; and requests
// that were queued before there was a peer.
func TestLibzmq_req_relaxed_reps(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := quick(sockets.Options{ReqRelaxed: true, ReqCorrelate: true})
	req := bind(t, sockets.NewReq, o)
	var reps []*sockets.Rep
	for i := range 5 {
		reps = append(reps, dialled(t, sockets.NewRep, sockets.Options{}, req.LastEndpoint()))
		eventually(t, "it is there", func() bool { return len(req.Peers()) == i+1 })
		onlyOut(t, req)
	}
	ask := func(to int, frames ...string) {
		t.Helper()
		m := make([][]byte, len(frames))
		for i := range frames {
			m[i] = []byte(frames[i])
		}
		must(t, req.Send(ctx, m...))
		wants(t, reps[to], strings.Join(frames, " "))
	}
	ask(0, "A", "B")
	onlyOut(t, req)
	ask(1, "C", "D")
	onlyOut(t, req)
	says(t, reps[0], "WRONG")
	says(t, reps[1], "OK")
	wants(t, req, "OK")
	ask(2, "E")
	must(t, reps[2].Send(ctx, []byte("F"), []byte("G")))
	wants(t, req, "F G")
	ask(3, "H")
	says(t, reps[3], "BAD")
	eventually(t, "the reply waits", func() bool { return pending(req.Peers()) > 0 })
	ask(4, "I")
	says(t, reps[4], "GOOD")
	wants(t, req, "GOOD")
	ask(0, "J")

	endpoint := freePort(t)
	late := open(t, sockets.NewReq, o)
	must(t, late.Connect(endpoint))
	says(t, late, "to be discarded", "to be answered")
	router := open(t, sockets.NewRouter, sockets.Options{})
	must(t, router.Bind(ctx, endpoint))
	for range 2 {
		m, err := router.Recv(ctx)
		must(t, err)
		must(t, router.Send(ctx, m...))
	}
	wants(t, late, "to be answered")
}

// readable waits until a socket has a message to receive.
func readable(t *testing.T, s sockets.Socket) {
	t.Helper()
	var p sockets.Poller
	defer p.Close()
	must(t, p.Add(s, sockets.PollIn))
	_, err := p.Wait(testContext(t))
	must(t, err)
}

// onlyOut expects that a poller finds a socket ready to send, and not to receive.
func onlyOut(t *testing.T, s sockets.Socket) {
	t.Helper()
	var p sockets.Poller
	defer p.Close()
	must(t, p.Add(s, sockets.PollIn|sockets.PollOut))
	ready, err := p.Wait(testContext(t))
	must(t, err)
	if len(ready) != 1 || ready[0].Events != sockets.PollOut {
		t.Errorf("%+v", ready)
	}
}
