package sockets

import (
	"bytes"
	"errors"
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
	wanted := uint64(0)
	reached := func() bool { return peer.engine().Reads() >= wanted }
	beats := func(n uint64) {
		wanted = peer.engine().Reads() + 2*n
		eventually(t, "the peers have sent heartbeats", reached)
	}
	beats(20)
	if n := testenv.Allocs(0, 20, func() { beats(5) }); n != 0 {
		t.Errorf("5 beats allocate %v times", n)
	}
}
