package freelance

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"clustermap/sockets"
)

// TestMaxTotalBytes: the queues of clients that do not read are bounded together. When
// the bound is exceeded, the client with the longest queue is disconnected, and a client
// that reads is served.
func TestMaxTotalBytes(t *testing.T) {
	t.Parallel()
	const clients, size, total = 8, 1 << 20, 4 << 20
	var slow atomic.Int32
	server := startServer(t, ServerOptions{
		MaxTotalBytes: total, MaxWait: hang,
		Handler: func(context.Context, [][]byte) ([][]byte, error) {
			return [][]byte{make([]byte, size)}, nil
		},
		Monitor: func(e sockets.Event) {
			if e.Kind == sockets.EventDisconnected && errors.Is(e.Err, sockets.ErrSlowPeer) {
				slow.Add(1)
			}
		},
	})
	var all []*rawClient
	for range clients {
		c := startRawClient(t, server.Endpoint(), sockets.Options{
			RecvHWM: 1, RecvHWMBytes: 1, RecvBuffer: 64 << 10, ReconnectInterval: -1,
		})
		all = append(all, c)
	}
	// The system buffers some megabytes for a client. 40 replies do not exceed the bound
	// of its own queue.
	for n := 0; n < 40 && slow.Load() < clients/2; n++ {
		for _, c := range all {
			if err := c.SendTo(testContext(t), c.peer, []byte("1"), []byte("x")); err != nil && !errors.Is(err, sockets.ErrUnroutable) {
				t.Fatal(err)
			}
		}
	}
	eventually(t, "slow clients are disconnected", func() bool { return slow.Load() >= clients/2 })
	reads := startClient(t, ClientOptions{Servers: []string{server.Endpoint()}})
	for range 3 {
		reply, err := reads.Request(testContext(t), []byte("x"))
		must(t, err)
		if len(reply) != 1 || len(reply[0]) != size {
			t.Fatal("another reply")
		}
	}
	if n := slow.Load(); n > clients {
		t.Errorf("%d were disconnected; the one that reads must not be", n)
	}
}
