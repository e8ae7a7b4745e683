package sockets

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"

	"clustermap/zmtp"
)

// TestMessagesThatWaitForTheTotalCount: whole large messages that wait until the queues
// take them count as memory that is held, however many peers send them, and all of them
// arrive.
func TestMessagesThatWaitForTheTotalCount(t *testing.T) {
	t.Parallel()
	const bound, peers, size = 4 << 20, 20, 1 << 20
	ctx := testContext(t)
	seen := newEvents()
	pull := open(t, NewPull, Options{RecvTotalBytes: bound, MaxIncompleteBytes: bound, Monitor: seen.Tell})
	pull.core.Tuning.StallPatience = hang
	must(t, pull.Bind(ctx, anyPort))
	for i := range peers {
		push := open(t, NewPush, Options{})
		must(t, push.Connect(pull.LastEndpoint()))
		must(t, push.Send(ctx, bytes.Repeat([]byte{byte(i)}, size)))
		must(t, push.Send(ctx, bytes.Repeat([]byte{byte(i)}, size)))
	}
	check := func() {
		used, _ := pull.held()
		s := pull.core.In.Status()
		if used > bound+2*size+1<<18 || s.Bytes > bound+4*size || s.Held*size > bound+2*size {
			t.Fatalf("%d bytes are held, %d queued, and %d readers wait", used, s.Bytes, s.Held)
		}
	}
	eventually(t, "readers wait", func() bool { check(); return pull.core.In.Status().Held > 0 })
	var count [peers]int
	for range 2 * peers {
		m, err := pull.Recv(ctx)
		must(t, err)
		check()
		count[m[0][0]]++
	}
	for i, n := range count {
		if n != 2 {
			t.Errorf("%d messages of peer %d", n, i)
		}
	}
	eventually(t, "nothing is held", func() bool {
		used, holders := pull.held()
		return used == 0 && holders == 0
	})
	if n := seen.Count(EventDisconnected); n > 0 {
		t.Errorf("%d disconnected", n)
	}
}

// halting is a connection on which a number of bytes is sent at first, and the rest later.
type halting struct {
	net.Conn
	left int
	goOn chan struct{}
}

func (h *halting) Write(b []byte) (int, error) {
	n := min(len(b), h.left)
	h.left -= n
	if n > 0 || len(b) == 0 {
		if n, err := h.Conn.Write(b[:n]); err != nil || n == len(b) {
			return n, err
		}
	}
	<-h.goOn
	m, err := h.Conn.Write(b[n:])
	return n + m, err
}

// TestSmallPartialMessagesCount: the beginnings of messages that are smaller than the chunk
// that a reader reads into count together as well. Peers that would exceed the limit wait,
// a peer that sends small messages is not disturbed, and in the end all have arrived.
func TestSmallPartialMessagesCount(t *testing.T) {
	t.Parallel()
	for name, p := range pairs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const bound, peers, size = 2 << 20, 100, 100_000
			ctx := testContext(t)
			seen := newEvents()
			pull := open(t, NewPull, Options{MaxIncompleteBytes: bound, Security: p.server, Monitor: seen.Tell})
			pull.core.Tuning.StallPatience = hang
			must(t, pull.Bind(ctx, anyPort))
			goOn := make(chan struct{})
			resume := sync.OnceFunc(func() { close(goOn) })
			dial := func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				return &halting{Conn: conn, left: size / 2, goOn: goOn}, err
			}
			for range peers {
				push := open(t, NewPush, Options{Security: p.client, Dial: dial})
				t.Cleanup(resume) // before it is closed
				must(t, push.Connect(pull.LastEndpoint()))
				must(t, push.Send(ctx, make([]byte, size)))
			}
			eventually(t, "all hold or wait for memory", func() bool {
				used, holders := pull.held()
				if most := bound + 1<<20; used > most { // those that read when it became scarce
					t.Fatalf("%d bytes are held", used)
				}
				return holders == peers
			})
			push := open(t, NewPush, Options{Security: p.client})
			must(t, push.Connect(pull.LastEndpoint()))
			for range 10 {
				must(t, push.Send(ctx, []byte("small")))
				wantRecv(t, func() (Message, error) { return pull.Recv(ctx) }, "small")
			}
			resume()
			for range peers {
				m, err := pull.Recv(ctx)
				must(t, err)
				if len(m) != 1 || len(m[0]) != size {
					t.Errorf("%d frames", len(m))
				}
			}
			eventually(t, "nothing is held", func() bool {
				used, holders := pull.held()
				return used == 0 && holders == 0 && !pull.core.Status().Scarce
			})
			if n := seen.Count(EventDisconnected); n > 0 {
				t.Errorf("%d disconnected", n)
			}
		})
	}
}

// TestHeldIsTwiceWhatHasArrived: of large messages that have arrived in part, however much was
// announced, a socket holds twice what has arrived, and for all peers together an eighth of the
// bound beside that. It does not matter how the application receives large messages.
func TestHeldIsTwiceWhatHasArrived(t *testing.T) {
	t.Parallel()
	const bound, peers, announced, sent = 64 << 20, 20, 3 << 20, 600_000
	for name, receive := range map[string]func(ctx context.Context, pull *Pull) error{
		"Recv":      func(ctx context.Context, pull *Pull) error { _, err := pull.Recv(ctx); return err },
		"RecvBatch": func(ctx context.Context, pull *Pull) error { return pull.RecvBatch(ctx, new(Batch)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			pull := open(t, NewPull, Options{MaxIncompleteBytes: bound})
			must(t, pull.Bind(ctx, anyPort))
			push := open(t, NewPush, Options{})
			must(t, push.Connect(pull.LastEndpoint()))
			for range 3 {
				must(t, push.Send(ctx, make([]byte, 100_000)))
				must(t, receive(ctx, pull))
			}
			for range peers {
				r := dialRaw(t, pull.LastEndpoint()).Greet("PUSH", nil)
				go func() { // it is not read to the end
					_, _ = r.Conn.Write(append(zmtp.AppendHeader(nil, 0, announced), make([]byte, sent)...))
				}()
			}
			eventually(t, "all has arrived", func() bool {
				used, holders := pull.held()
				if used > 2*peers*sent+bound/8 {
					t.Fatalf("%d bytes are held", used)
				}
				return holders == peers && used >= peers*sent
			})
		})
	}
}
