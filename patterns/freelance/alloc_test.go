package freelance

import (
	"context"
	"testing"

	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// TestAllocPing: a server answers pings without allocating. The test is not parallel,
// since it counts the allocations of the whole process.
func TestAllocPing(t *testing.T) {
	s := startServer(t, ServerOptions{})
	c := startRawClient(t, s.Endpoint(), sockets.Options{RecvHWM: -1})
	ctx, body := testContext(t), []byte("PING")
	var b sockets.Batch
	defer b.Release()
	exchange := func() {
		for range 10 {
			must(t, c.SendTo(ctx, c.peer, body))
		}
		for n := 0; n < 10; n += b.Len() {
			must(t, c.RecvBatch(ctx, &b))
		}
	}
	if n := testenv.Allocs(200, 1000, exchange); n != 0 {
		t.Errorf("ten pings allocate %v times", n)
	}
}

// TestAllocRequest: a request and its reply allocate, in client and server together,
// only the bytes of the two messages and the slices of their frames.
func TestAllocRequest(t *testing.T) {
	reply := [][]byte{[]byte("reply")}
	s := startServer(t, ServerOptions{Concurrency: 1, Handler: func(context.Context, [][]byte) ([][]byte, error) { return reply, nil }})
	c := startClient(t, ClientOptions{Servers: []string{s.Endpoint()}}).alive(t)
	ctx, body := testContext(t), []byte("body")
	request := func() {
		if _, err := c.Do(ctx, body); err != nil {
			t.Fatal(err)
		}
	}
	if n := testenv.Allocs(200, 1000, request); n > 4 {
		t.Errorf("a request allocates %v times", n)
	}
}
