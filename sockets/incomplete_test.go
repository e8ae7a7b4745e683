package sockets

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"clustermap/zmtp"
)

// held returns the memory that a socket holds for messages that have not arrived as a
// whole.
func (s *socket) held() (bytes, holders int) {
	now := s.core.Status()
	return now.Incomplete, now.Holders
}

// TestStalledMessagesGiveWay: peers that announce large messages and stop in the middle hold
// no more than the bound together, and are disconnected when others need it; a peer
// with a small message does not notice them.
func TestStalledMessagesGiveWay(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const bound = 4 << 20
	seen := newEvents()
	router := open(t, NewRouter, Options{MaxIncompleteBytes: bound, Monitor: seen.Tell})
	// The usual patience: with less, the honest peer would stall too on a busy machine.
	must(t, router.Bind(ctx, anyPort))
	const hostile = 6
	for range hostile {
		r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", nil)
		go func() { // it is not read to the end
			_, _ = r.Conn.Write(append(zmtp.AppendHeader(nil, 0, 200<<20), make([]byte, 3<<20)...))
		}()
	}
	eventually(t, "they hold what they can", func() bool {
		used, holders := router.held()
		if used > bound+8<<20 { // the first may go on
			t.Errorf("%d bytes are held", used)
		}
		return used > bound/2 && holders > 1
	})
	small := open(t, NewDealer, Options{Identity: []byte("small")})
	must(t, small.Connect(router.LastEndpoint()))
	must(t, small.Send(ctx, []byte("x")))
	wantRecv(t, func() (Message, error) { return router.Recv(ctx) }, "small", "x")

	large := open(t, NewDealer, Options{Identity: []byte("large")})
	must(t, large.Connect(router.LastEndpoint()))
	must(t, large.Send(ctx, make([]byte, bound)))
	m, err := router.Recv(ctx)
	must(t, err) // it was not the one that was disconnected
	if string(m[0]) != "large" || len(m[1]) != bound {
		t.Errorf("%q, %d bytes", m[0], len(m[1]))
	}
	if e := seen.Await(t, EventDisconnected); !errors.Is(e.Err, ErrStalled) {
		t.Errorf("%v", e.Err)
	}
	// When all have gone nothing is counted.
	must(t, router.Close())
	if used, holders := router.held(); used != 0 || holders != 0 {
		t.Errorf("%d bytes of %d connections are counted at the end", used, holders)
	}
}

// TestLargeMessagesWaitForEachOther: peers whose large messages together are more than the bound wait
// for each other, and all of them arrive.
func TestLargeMessagesWaitForEachOther(t *testing.T) {
	t.Parallel()
	for name, p := range pairs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			seen := newEvents()
			const peers, size = 5, 2 << 20
			pull := open(t, NewPull, Options{MaxIncompleteBytes: 1 << 20, Security: p.server, Monitor: seen.Tell})
			pull.core.Tuning.StallPatience = hang // on a busy machine peers are slow
			must(t, pull.Bind(ctx, anyPort))
			for i := range peers {
				push := open(t, NewPush, Options{Security: p.client})
				must(t, push.Connect(pull.LastEndpoint()))
				for range 3 {
					must(t, push.Send(ctx, bytes.Repeat([]byte{byte(i)}, size), []byte("end")))
				}
			}
			count := [peers]int{}
			for range 3 * peers {
				m, err := pull.Recv(ctx)
				must(t, err)
				if len(m) != 2 || len(m[0]) != size || bytes.Count(m[0], m[0][:1]) != size {
					t.Fatalf("%d frames, the first of %d bytes", len(m), len(m[0]))
				}
				count[m[0][0]]++
			}
			if count != [peers]int{3, 3, 3, 3, 3} {
				t.Errorf("%v", count)
			}
			eventually(t, "nothing is held", func() bool {
				used, holders := pull.held()
				return used == 0 && holders == 0
			})
			if n := seen.Count(EventDisconnected); n > 0 {
				t.Errorf("%d disconnected", n)
			}
		})
	}
}

// TestConnectionsAreLimited: one connection more is closed at once, with a typed
// event, unless a silent one can give way; when one has ended there is room again.
func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	seen := newEvents()
	router := open(t, NewRouter, Options{MaxConnections: 3, Monitor: seen.Tell})
	router.core.Tuning.HandshakeGrace = time.Nanosecond
	must(t, router.Bind(ctx, anyPort))
	must(t, router.Bind(ctx, anyPort)) // it is a bound over all endpoints
	silent := dialRaw(t, router.LastEndpoint())
	seen.Await(t, EventAccepted)
	var all []*raw
	for i := range 3 { // for the last of them, the silent one has to go
		r := dialRaw(t, router.LastEndpoint()).Greet("DEALER", fmt.Append(nil, i))
		r.Sync()
		all = append(all, r)
	}
	silent.Ended()
	more, err := net.Dial("tcp", strings.TrimPrefix(router.LastEndpoint(), "tcp://"))
	must(t, err)
	newRaw(t, more).Ended()
	if e := seen.Await(t, EventAcceptFailed); !errors.Is(e.Err, ErrTooManyConnections) || e.Remote != more.LocalAddr().String() {
		t.Errorf("%+v", e)
	}
	all[1].Conn.Close()
	seen.Await(t, EventDisconnected)
	eventually(t, "there is room", func() bool {
		return dialRaw(t, router.LastEndpoint()).TryGreet("DEALER", []byte("new")) == nil
	})
	all[0].Sync()
	all[2].Sync()
}
