package sockets

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermap/zmtp"
)

// partial is a peer that has sent a message of the given size but for its last byte.
func partial(t *testing.T, from, endpoint string, size int) *raw {
	t.Helper()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(endpoint, "tcp://"))
	must(t, err)
	r := newRaw(t, conn).Greet("PUSH", nil)
	var sent sync.WaitGroup
	sent.Go(func() { // it is perhaps not read
		_, _ = r.Conn.Write(append(zmtp.AppendHeader(nil, 0, size), make([]byte, size-1)...))
	})
	t.Cleanup(func() { r.Conn.Close(); sent.Wait() })
	return r
}

// pullOfPartials returns a socket to which a client has sent the beginnings of messages, of
// twice the bytes that the socket may keep.
func pullOfPartials(t *testing.T, bound, size int) (*Pull, *events) {
	t.Helper()
	seen := newEvents()
	pull := open(t, NewPull, Options{MaxIncompleteBytes: bound, Monitor: seen.Tell})
	pull.core.Tuning.StallPatience = hang // it is not because of the time that they take
	must(t, pull.Bind(t.Context(), anyPort))
	peers := 2 * bound / size
	for range peers {
		partial(t, "127.0.0.2", pull.LastEndpoint(), size)
	}
	eventually(t, "they hold what they can", func() bool {
		used, holders := pull.held()
		return used > bound/2 && holders > 2 && pull.core.Status().Scarce
	})
	return pull, seen
}

// TestSlowClientLeavesRoom: a client that holds what it can with messages that do not come
// to an end delays the large messages of others only as long as one of them needs.
func TestSlowClientLeavesRoom(t *testing.T) {
	t.Parallel()
	const bound, size = 8 << 20, 300_000
	pull, seen := pullOfPartials(t, bound, size)
	large := open(t, NewPush, Options{})
	must(t, large.Connect(pull.LastEndpoint()))
	for range 3 {
		must(t, large.Send(t.Context(), make([]byte, size)))
		m, err := pull.Recv(testContext(t))
		must(t, err)
		if len(m) != 1 || len(m[0]) != size {
			t.Errorf("%d frames", len(m))
		}
	}
	if n := seen.Count(EventDisconnected); n > 0 {
		t.Errorf("%d disconnected", n)
	}
}

// TestHeaviestClientGivesWay: of the peers that have stalled, one of the client that holds
// most is disconnected, though another has stalled for longer.
func TestHeaviestClientGivesWay(t *testing.T) {
	t.Parallel()
	const bound, size = 4 << 20, 300_000
	seen := newEvents()
	pull := open(t, NewPull, Options{MaxIncompleteBytes: bound, Monitor: seen.Tell})
	pull.core.Tuning.StallPatience = time.Millisecond
	must(t, pull.Bind(t.Context(), anyPort))
	long := partial(t, "127.0.0.3", pull.LastEndpoint(), size)
	eventually(t, "the first holds memory", func() bool { used, _ := pull.held(); return used > size })
	for range 2 * bound / size {
		partial(t, "127.0.0.2", pull.LastEndpoint(), size)
	}
	e := seen.Await(t, EventDisconnected)
	if !errors.Is(e.Err, ErrStalled) || !strings.HasPrefix(e.Remote, "127.0.0.2:") {
		t.Errorf("%v: %v; the first came from %v", e.Remote, e.Err, long.Conn.LocalAddr())
	}
}
