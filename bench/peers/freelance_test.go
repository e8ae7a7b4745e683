package peers

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"clustermap/bench/peers/internal/libzmq"
	"clustermap/patterns/freelance"
)

// ourFreelance is our client and server, over loopback TCP. It makes n requests, a given
// number at once, each in a goroutine that waits for its reply.
func ourFreelance(b *testing.B, body []byte, window int) func(n int) {
	b.Helper()
	ctx := context.Background()
	server, err := freelance.NewServer(ctx, freelance.ServerOptions{
		Bind:    "tcp://127.0.0.1:*",
		Handler: func(_ context.Context, request [][]byte) ([][]byte, error) { return request, nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { server.Close() })
	client, err := freelance.NewClient(freelance.ClientOptions{Servers: []string{server.Endpoint()}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	return func(n int) {
		var left atomic.Int64
		left.Store(int64(n))
		var all sync.WaitGroup
		for range min(window, n) {
			all.Go(func() {
				for left.Add(-1) >= 0 {
					reply, err := client.Request(ctx, body)
					if err != nil || len(reply) != 1 || !bytes.Equal(reply[0], body) {
						b.Errorf("%d frames, %v", len(reply), err)
						return
					}
				}
			})
		}
		all.Wait()
	}
}

// libzmqFreelance is the guide's design in C: ROUTER to ROUTER, a thread each, with a
// given number of requests in flight, which the guide's client cannot do.
func libzmqFreelance(b *testing.B, body []byte, window int) func(n int) {
	b.Helper()
	const identity = "server"
	c := libzmq.NewContext()
	b.Cleanup(c.Shutdown)
	server, err := c.Socket(libzmq.ROUTER)
	if err == nil {
		err = server.Identify(identity)
	}
	var endpoint string
	if err == nil {
		endpoint, err = server.Bind("tcp://127.0.0.1:*")
	}
	var client libzmq.Socket
	if err == nil {
		client, err = c.Socket(libzmq.ROUTER)
	}
	if err == nil {
		err = client.Mandatory()
	}
	if err == nil {
		err = client.Connect(endpoint)
	}
	if err != nil {
		b.Fatal(err)
	}
	go server.ServeFreelance()
	return func(n int) {
		if err := client.CallFreelance(identity, body, window, n); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFreelance makes requests of 100 bytes, one or many at once, with our client
// and server and with the same design in C on libzmq in turn.
//
// ns/op is that of both together. ours-ns and peer-ns are the medians of the turns,
// and ratio is the median of peer/ours: above 1, ours is faster.
func BenchmarkFreelance(b *testing.B) {
	body := bytes.Repeat([]byte{'x'}, 100)
	for _, window := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("at-once=%d", window), func(b *testing.B) {
			us, them := ourFreelance(b, body, window), libzmqFreelance(b, body, window)
			us(1000)
			them(1000)
			b.ResetTimer()
			turns(b, us, them)
		})
	}
}
