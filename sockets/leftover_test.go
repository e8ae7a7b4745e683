package sockets

import (
	"errors"
	"fmt"
	"testing"
)

// leftovers is how much peers that have gone left to a socket.
func leftovers(s *socket) int { return s.core.In.Status().Leftovers }

// TestLeftovers: messages left by peers that come, send and go are bounded together, and
// none of them is lost.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	const peers, mark = 200, 64 << 10
	pull := bind(t, NewPull, Options{RecvHWMBytes: mark})
	known := dialRaw(t, pull.LastEndpoint()).Greet("PUSH", nil)
	known.Send(wire("known"))
	m, err := pull.Recv(testContext(t))
	must(t, err)
	if string(m[0]) != "known" {
		t.Fatalf("%q", m)
	}
	for i := range peers {
		r := dialRaw(t, pull.LastEndpoint()).Greet("PUSH", nil)
		r.Send(wire(fmt.Sprint(i), string(make([]byte, 1000))))
		r.Conn.Close()
	}
	eventually(t, "peers that come wait", func() bool { return leftovers(&pull.socket) >= mark })
	// A peer that was there before is not held up.
	known.Send(wire("known"))
	eventually(t, "its message is queued", func() bool {
		for _, p := range pull.Peers() {
			if p.Remote == known.Conn.LocalAddr().String() {
				return p.PendingMessages == 1
			}
		}
		return false
	})
	if n := leftovers(&pull.socket); n > 2*mark {
		t.Errorf("%d bytes are left by peers that have gone, the mark is %d", n, mark)
	}
	seen := map[string]int{}
	for range peers + 1 {
		m, err := pull.Recv(testContext(t))
		must(t, err)
		seen[string(m[0])]++
	}
	for i := range peers {
		if n := seen[fmt.Sprint(i)]; n != 1 {
			t.Errorf("message %d came %d times", i, n)
		}
	}
	eventually(t, "nothing is left", func() bool { return leftovers(&pull.socket) == 0 })
	if _, err := pull.TryRecv(); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("and there is more: %v", err)
	}
}

// TestLeftoversNotices: peers of which the application is told that they come and
// go are bounded as well.
func TestLeftoversNotices(t *testing.T) {
	t.Parallel()
	const peers, mark = 60, 32 << 10
	router := bind(t, NewRouter, Options{RecvHWMBytes: mark, Notify: NotifyConnect | NotifyDisconnect})
	for range peers {
		r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
		r.Conn.Close()
	}
	eventually(t, "peers that come wait", func() bool { return leftovers(&router.socket) >= mark })
	if n := leftovers(&router.socket); n > 2*mark {
		t.Errorf("%d bytes are left by peers that have gone, the mark is %d", n, mark)
	}
	for range 2 * peers {
		m, err := router.Recv(testContext(t))
		must(t, err)
		if len(m) != 2 || len(m[1]) != 0 {
			t.Errorf("%q is not a notice", m)
		}
	}
	eventually(t, "nothing is left", func() bool { return leftovers(&router.socket) == 0 })
}

// TestLeftoversHiccups: a peer that goes and comes again, while the application does not
// receive, leaves no more than the high-water mark.
func TestLeftoversHiccups(t *testing.T) {
	t.Parallel()
	const mark = 3
	endpoint, accept := listenRaw(t)
	dealer := dialled(t, NewDealer, quick(Options{HiccupMessage: []byte("hiccup"), RecvHWM: mark}), endpoint)
	for range 3 * mark {
		accept().Greet("ROUTER", nil).Conn.Close()
	}
	accept().Greet("ROUTER", nil)
	eventually(t, "the last one is there", func() bool { return dealer.Peers()[0].Connected })
	for range mark {
		wants(t, dealer, "hiccup")
	}
	if m, err := dealer.TryRecv(); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("and more: %q, %v", m, err)
	}
}

// TestLeftoversClose: Close does not wait for the application.
func TestLeftoversClose(t *testing.T) {
	t.Parallel()
	pull := bind(t, NewPull, Options{RecvHWMBytes: 1000})
	for range 20 {
		r := dialRaw(t, pull.LastEndpoint()).Greet("PUSH", nil)
		r.Send(wire("m"))
		r.Conn.Close()
	}
	eventually(t, "peers that come wait", func() bool { return leftovers(&pull.socket) >= 1000 })
	within(t, "Close", func() { must(t, pull.Close()) })
}
