package sockets

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"clustermap/internal/testenv"
	"clustermap/zmtp"
)

// TestHeartbeatOtherWork: PINGs go out between messages, and the peer's
// messages answer them as well as PONGs do.
func TestHeartbeatOtherWork(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	o := Options{HeartbeatInterval: time.Millisecond, HeartbeatTimeout: hang, Monitor: seen.Tell}
	dealer := bind(t, NewDealer, o)
	r := dialRaw(t, dealer.LastEndpoint()).Greet("DEALER", nil)
	pings := 0
	for i := 0; pings < 20; i++ {
		must(t, dealer.Send(ctx, []byte("from us"), make([]byte, i*100)))
		for {
			flags, body := r.Frame()
			if flags&zmtp.FlagCommand == 0 {
				if string(body) != "from us" || flags != zmtp.FlagMore {
					t.Fatalf("%x %q", flags, body)
				}
				r.Frame()
				break
			}
			if string(body) != "\x04PING\x00\x00" {
				t.Fatalf("%q", body)
			}
			pings++
		}
		r.Send(wire("from it"))
		wants(t, dealer, "from it")
	}
}

// TestPing: a peer that only waits is asked with a PING, and its answer shows as a read.
func TestPing(t *testing.T) {
	t.Parallel()
	router := bind(t, NewRouter, Options{})
	r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
	dialRaw(t, router.LastEndpoint()) // no handshake
	eventually(t, "the peer is connected", func() bool { return router.Reads() > 0 })
	router.Ping()
	if flags, body := r.Frame(); flags&zmtp.FlagCommand == 0 || string(body) != "\x04PING\x00\x00" {
		t.Fatalf("%x %q", flags, body)
	}
	before := router.Reads()
	r.Send(zmtp.AppendPong(nil, nil))
	eventually(t, "the answer shows", func() bool { return router.Reads() != before })
}

// TestHeartbeatBusyApplication: while the application does not receive, the socket does
// not read, and does not disconnect the peer.
func TestHeartbeatBusyApplication(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	o := Options{HeartbeatInterval: 5 * time.Millisecond, HeartbeatTimeout: 15 * time.Millisecond, RecvHWM: 1, Monitor: seen.Tell}
	dealer := bind(t, NewDealer, o)
	r := dialRaw(t, dealer.LastEndpoint())
	const count = 10
	// All at once, so that the peer never is silent before its last message.
	r.Send(slices.Concat(greeting(1), ready("DEALER", nil), bytes.Repeat(wire("x"), count)))
	r.Greeted()
	for range 20 {
		if name, _ := r.Command(); name != "PING" {
			t.Fatal(name)
		}
	}
	if s := dealer.Peers(); len(s) != 1 || !s[0].Connected {
		t.Errorf("%+v", s)
	}
	for range count {
		_, err := dealer.Recv(ctx)
		must(t, err)
	}
	if e := seen.Await(t, EventDisconnected); !errors.Is(e.Err, ErrHeartbeatTimeout) {
		t.Errorf("%v", e.Err)
	}
}

// TestHeartbeatReconnects: a connecting socket reconnects after a heartbeat timeout.
func TestHeartbeatReconnects(t *testing.T) {
	t.Parallel()
	endpoint, accept := listenRaw(t)
	seen := newEvents()
	dialled(t, NewDealer, quick(Options{HeartbeatInterval: time.Millisecond, Monitor: seen.Tell}), endpoint)
	for range 3 {
		accept().Greet("ROUTER", nil)
		if e := seen.Await(t, EventDisconnected); !errors.Is(e.Err, ErrHeartbeatTimeout) {
			t.Errorf("%v", e.Err)
		}
	}
}

// TestHeartbeatOurs: two of our sockets keep up a connection with nothing else
// to say, and a peer that has PINGs of its own is answered.
func TestHeartbeatOurs(t *testing.T) {
	t.Parallel()
	seen := newEvents()
	o := Options{HeartbeatInterval: time.Millisecond, HeartbeatTimeout: hang, HeartbeatTTL: hang, Monitor: seen.Tell}
	router := bind(t, NewRouter, o)
	dealer := dialled(t, NewDealer, o, router.LastEndpoint())
	peer := seen.Await(t, EventHandshakeSucceeded).Peer
	from := peer.engine().Reads()
	eventually(t, "100 reads", func() bool { return peer.engine().Reads() >= from+200 })
	if n := peer.engine().Conn().MessagesIn.Load() + peer.engine().Conn().MessagesOut.Load(); n != 0 {
		t.Errorf("%d messages", n)
	}
	if s := dealer.Peers(); len(s) != 1 || !s[0].Connected {
		t.Errorf("%+v", s)
	}
}

// TestAllocHeartbeat: heartbeats do not allocate.
func TestAllocHeartbeat(t *testing.T) {
	seen := newEvents()
	o := Options{HeartbeatInterval: time.Millisecond, HeartbeatTimeout: hang, HeartbeatTTL: hang, Monitor: seen.Tell}
	router := bind(t, NewRouter, o)
	dialled(t, NewDealer, Options{}, router.LastEndpoint())
	peer := seen.Await(t, EventHandshakeSucceeded).Peer
	beats := func(n uint64) {
		for from := peer.engine().Reads(); peer.engine().Reads() < from+2*n; {
			time.Sleep(100 * time.Microsecond)
		}
	}
	beats(20)
	if n := testenv.Allocs(0, 20, func() { beats(5) }); n != 0 {
		t.Errorf("5 beats allocate %v times", n)
	}
}

// TestLibzmq_heartbeats: the requirements of libzmq's test of that name.
func TestLibzmq_heartbeats(t *testing.T) {
	t.Parallel()
	t.Run("silent peer", func(t *testing.T) {
		t.Parallel()
		// It is dropped after a PING, and only then.
		seen := newEvents()
		router := bind(t, NewRouter, Options{HeartbeatInterval: 20 * time.Millisecond, Monitor: seen.Tell})
		r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
		if name, data := r.Command(); name != "PING" || data != "\x00\x00" {
			t.Errorf("%s %q", name, data)
		}
		r.Ended()
		if e := seen.Await(t, EventDisconnected); !errors.Is(e.Err, ErrHeartbeatTimeout) {
			t.Errorf("%v", e.Err)
		}
	})
	t.Run("context", func(t *testing.T) {
		t.Parallel()
		// It is echoed, but no more than 16 bytes.
		router := bind(t, NewRouter, Options{})
		r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
		for _, size := range []int{0, 3, 15, 16, 17, 100} {
			context := []byte("LOL" + fmt.Sprintf("%0100d", 1))[:size]
			r.Send(zmtp.AppendCommand(nil, "PING", append([]byte{0, 0}, context...)))
			if name, data := r.Command(); name != "PONG" || data != string(context[:min(size, 16)]) {
				t.Errorf("%d bytes: %s %q", size, name, data)
			}
		}
	})
	t.Run("ttl", func(t *testing.T) {
		t.Parallel()
		// The side that dials sends PINGs with a ttl, too seldom for it: the
		// other one, which has no heartbeats of its own, ends the connection.
		seldom := Options{HeartbeatInterval: 200 * time.Millisecond, HeartbeatTimeout: hang, HeartbeatTTL: 100 * time.Millisecond}
		for name, pair := range map[string][2]func(testing.TB, Options) Socket{
			"DEALER ROUTER": {maker(NewDealer), maker(NewRouter)},
			"REQ REP":       {maker(NewReq), maker(NewRep)},
			"PAIR PAIR":     {maker(NewPair), maker(NewPair)},
			"PULL PUSH":     {maker(NewPull), maker(NewPush)},
			"SUB PUB":       {maker(NewSub), maker(NewPub)},
			"XSUB XPUB":     {maker(NewXSub), maker(NewXPub)},
		} {
			ours, theirs := zmtp.GenerateKeyPair(), zmtp.GenerateKeyPair()
			for mechanism, s := range map[string][2]Security{
				"NULL":  {},
				"CURVE": {{CurveSecretKey: theirs.Secret, CurveServerKey: ours.Public}, {CurveServer: true, CurveSecretKey: ours.Secret}},
			} {
				t.Run(name+" "+mechanism, func(t *testing.T) {
					t.Parallel()
					seen := newEvents()
					server := pair[1](t, Options{Monitor: seen.Tell, Security: s[1]})
					must(t, server.Bind(testContext(t), anyPort))
					client := seldom
					client.Security = s[0]
					must(t, pair[0](t, client).Connect(server.LastEndpoint()))
					if e := seen.Await(t, EventDisconnected); !errors.Is(e.Err, ErrHeartbeatTimeout) {
						t.Errorf("%v", e.Err)
					}
				})
			}
		}
	})
	t.Run("options", func(t *testing.T) {
		t.Parallel()
		for ttl, want := range map[time.Duration]uint16{
			0: 0, 99 * time.Millisecond: 0, 100 * time.Millisecond: 1, 199 * time.Millisecond: 1, 6553599 * time.Millisecond: 65535,
		} {
			router := bind(t, NewRouter, Options{HeartbeatInterval: time.Millisecond, HeartbeatTimeout: hang, HeartbeatTTL: ttl})
			r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
			if name, data := r.Command(); name != "PING" || data != string([]byte{byte(want >> 8), byte(want)}) {
				t.Errorf("%v: %s %q", ttl, name, data)
			}
		}
		for field, o := range map[string]Options{
			"HeartbeatTTL": {HeartbeatTTL: 6553600 * time.Millisecond}, "HeartbeatInterval": {HeartbeatInterval: -1},
			"HeartbeatTimeout": {HeartbeatTimeout: -1},
		} {
			var bad *OptionError
			if _, err := NewRouter(o); !errors.As(err, &bad) || bad.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		if _, err := NewRouter(Options{HeartbeatTTL: -1}); err == nil {
			t.Error("a negative ttl")
		}
	})
}

// maker makes a socket of any type.
func maker[S Socket](create func(Options) (S, error)) func(testing.TB, Options) Socket {
	return func(t testing.TB, o Options) Socket {
		t.Helper()
		return open(t, create, o)
	}
}
