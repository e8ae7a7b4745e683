package interop

import (
	"encoding/binary"
	"fmt"
	"testing"

	"clustermap/internal/interop"
	"clustermap/sockets"
)

// identities is both kinds of identity: the peer's own and a generated one.
var identities = []string{"peer", ""}

func name(identity string) string {
	if identity == "" {
		return "generated identity"
	}
	return "own identity"
}

// wantIdentity checks the identity that a ROUTER has for its peer: the peer's own, or
// five bytes beginning with zero.
func wantIdentity(t *testing.T, got []byte, own string) {
	t.Helper()
	if own != "" && string(got) != own {
		t.Fatalf("identity is %q, want %q", got, own)
	}
	if own == "" && (len(got) != 5 || got[0] != 0) {
		t.Fatalf("identity is %q, want five bytes beginning with zero", got)
	}
}

// combinations runs a test for each way to connect and each kind of identity,
// with the large shapes for one kind of them: they cost the most time.
func combinations(t *testing.T, test func(t *testing.T, who side, identity string, all []shape)) {
	for _, who := range []side{weBind, theyBind} {
		for _, identity := range identities {
			t.Run(fmt.Sprintf("%s/%s", who, name(identity)), func(t *testing.T) {
				t.Parallel()
				test(t, who, identity, shapes(identity != ""))
			})
		}
	}
}

func TestInteropRouter(t *testing.T) {
	t.Parallel()
	combinations(t, func(t *testing.T, who side, identity string, all []shape) {
		ctx := timeLimit(t)
		router := open(t, sockets.NewRouter, sockets.Options{})
		var args []string
		if identity != "" {
			args = []string{"--identity", base64Of(identity)}
		}
		dealer := linkTo(t, router, who, "DEALER", args...)
		for seed, s := range all {
			count := s.count()
			sent := pythonSends(dealer, nil, seed, s, count)
			for i := range count {
				m, err := router.Recv(ctx)
				check(t, err)
				wantIdentity(t, m[0], identity)
				wantFrames(t, m[1:], interop.Frames(seed, i, s))
				check(t, router.Send(ctx, m...))
			}
			sent.Done(nil)
			for i, got := range pythonReceives(dealer, count) {
				wantDescribed(t, got, interop.Frames(seed, i, s))
			}
			if t.Failed() {
				t.Fatalf("with the shape %v", s)
			}
		}
	})
}

func TestInteropDealer(t *testing.T) {
	t.Parallel()
	combinations(t, func(t *testing.T, who side, identity string, all []shape) {
		ctx := timeLimit(t)
		dealer := open(t, sockets.NewDealer, sockets.Options{Identity: []byte(identity)})
		router := linkTo(t, dealer, who, "ROUTER")
		for seed, s := range all {
			message := interop.Frames(seed, 0, s)
			check(t, dealer.Send(ctx, message...))
			got := pythonReceives(router, 1)[0]
			wantIdentity(t, got[0].Bytes, identity)
			wantDescribed(t, got[1:], message)

			count := s.count()
			sent := pythonSends(router, [][]byte{got[0].Bytes}, seed, s, count)
			for i := range count {
				m, err := dealer.Recv(ctx)
				check(t, err)
				wantFrames(t, m, interop.Frames(seed, i, s))
			}
			sent.Done(nil)
		}
	})
}

// TestInteropRouterMany has one ROUTER answer many peers at once.
func TestInteropRouterMany(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	router := open(t, sockets.NewRouter, sockets.Options{})
	check(t, router.Bind(ctx, anyPort))
	const peers, count = 4, 500
	var dealers [peers]*interop.Process
	var sent [peers]*interop.Pending
	for i := range dealers {
		own := fmt.Sprintf("dealer %d", i)
		dealers[i] = python(t, "DEALER", "--identity", base64Of(own), "--connect", router.LastEndpoint())
	}
	for i, d := range dealers {
		sent[i] = d.Start(interop.Op{"op": "flood", "n": count, "size": 100, "head": [][]byte{fmt.Appendf(nil, "dealer %d", i)}})
	}
	next := map[string]uint64{}
	for range peers * count {
		m, err := router.Recv(ctx)
		check(t, err)
		from := string(m[0])
		if len(m) != 3 || string(m[1]) != from {
			t.Fatalf("%q was received from %q", m[1:], from)
		}
		if n := binary.BigEndian.Uint64(m[2]); n != next[from] {
			t.Fatalf("message %d of %q came in place of %d", n, from, next[from])
		}
		next[from]++
		check(t, router.Send(ctx, m[0], m[2]))
	}
	for i, d := range dealers {
		sent[i].Done(nil)
		var c counted
		d.Call(interop.Op{"op": "count", "n": count}, &c)
		if c != (counted{count, true, 0, count - 1}) {
			t.Errorf("dealer %d counted %+v", i, c)
		}
	}
}

// TestInteropHeartbeats floods while libzmq sends PINGs as fast as it can. It
// may put them between the frames of a message, and takes PONGs there.
func TestInteropHeartbeats(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	router := open(t, sockets.NewRouter, sockets.Options{})
	dealer := linkTo(t, router, weBind, "DEALER",
		"--option", "HEARTBEAT_IVL=1", "--option", "HEARTBEAT_TIMEOUT=60000", "--option", "HEARTBEAT_TTL=60000")
	s := repeat(3000, 20)
	const count = 300
	sent := pythonSends(dealer, nil, 1, s, count)
	for i := range count {
		m, err := router.Recv(ctx)
		check(t, err)
		wantFrames(t, m[1:], interop.Frames(1, i, s))
		check(t, router.Send(ctx, m...))
	}
	sent.Done(nil)
	for i, got := range pythonReceives(dealer, count) {
		wantDescribed(t, got, interop.Frames(1, i, s))
	}
}

func TestInteropUnroutable(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	router := open(t, sockets.NewRouter, sockets.Options{})
	dealer := linkTo(t, router, weBind, "DEALER")
	pythonSays(dealer, "hello")
	m, err := router.Recv(ctx)
	check(t, err)
	// A message without a peer is dropped, and does not get in the way.
	check(t, router.Send(ctx, []byte("nobody"), []byte("lost")))
	check(t, router.Send(ctx, m...))
	wantDescribed(t, pythonReceives(dealer, 1)[0], [][]byte{[]byte("hello")})
}

// TestInteropWrongType has libzmq come with a socket type that does not fit.
func TestInteropWrongType(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	events := newEvents()
	router := open(t, sockets.NewRouter, sockets.Options{Monitor: events.Tell})
	check(t, router.Bind(timeLimit(t), anyPort))
	python(t, "SUB", "--connect", router.LastEndpoint())
	if e := events.Await(t, sockets.EventHandshakeFailed); e.Err == nil {
		t.Error("the event does not say why")
	}
	// Others are still welcome.
	dealer := python(t, "DEALER", "--connect", router.LastEndpoint())
	pythonSays(dealer, "hello")
	m, err := router.Recv(timeLimit(t))
	check(t, err)
	wantFrames(t, m[1:], [][]byte{[]byte("hello")})
}

// TestInteropProbe: the empty message of ProbeRouter, in both directions.
func TestInteropProbe(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	dealer := open(t, sockets.NewDealer, sockets.Options{ProbeRouter: true, Identity: []byte("me")})
	theirs := linkTo(t, dealer, theyBind, "ROUTER")
	wantDescribed(t, pythonReceives(theirs, 1)[0], [][]byte{[]byte("me"), nil})
	pythonSays(theirs, "me", "hello")
	m, err := dealer.Recv(ctx)
	check(t, err)
	wantFrames(t, m, [][]byte{[]byte("hello")})

	router := open(t, sockets.NewRouter, sockets.Options{})
	linkTo(t, router, weBind, "DEALER", "--option", "PROBE_ROUTER=1", "--identity", base64Of("them"))
	m, err = router.Recv(ctx)
	check(t, err)
	wantFrames(t, m, [][]byte{[]byte("them"), nil})
}

// TestInteropConnectAs: a ROUTER names libzmq's ROUTER itself.
func TestInteropConnectAs(t *testing.T) {
	t.Parallel()
	ctx := timeLimit(t)
	theirs := python(t, "ROUTER", "--bind", anyPort)
	router := open(t, sockets.NewRouter, sockets.Options{Identity: []byte("me"), Mandatory: true})
	check(t, router.ConnectAs(theirs.Endpoint, []byte("them")))
	check(t, router.Send(ctx, []byte("them"), []byte("hello")))
	wantDescribed(t, pythonReceives(theirs, 1)[0], [][]byte{[]byte("me"), []byte("hello")})
	pythonSays(theirs, "me", "hello to you")
	m, err := router.Recv(ctx)
	check(t, err)
	wantFrames(t, m, [][]byte{[]byte("them"), []byte("hello to you")})
}
