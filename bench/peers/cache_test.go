package peers

import (
	"context"
	"fmt"
	"testing"

	"clustermap/bench/internal/flow"
	"clustermap/bench/peers/internal/libzmq"
	"clustermap/patterns/lastvalue"
	"clustermap/sockets"
)

// topical is a flow of messages of 100 bytes under the given number of topics through a
// cache.
func topical(b *testing.B, topics int, in, out string) func(n int) {
	b.Helper()
	f, err := flow.NewTopics(context.Background(), topics, 100, in, out)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return func(n int) {
		if err := f.Pass(context.Background(), n); err != nil {
			b.Fatal(err)
		}
	}
}

// ourCache never disconnects the subscriber: it is to get every message.
func ourCache(b *testing.B, topics int) func(n int) {
	b.Helper()
	ctx := context.Background()
	c, err := lastvalue.New(lastvalue.Options{
		Subscribers: sockets.Options{SendHWMBytes: -1, SendTotalBytes: -1, Linger: sockets.LingerNone},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	in, e1 := c.BindPublisher(ctx, "tcp://127.0.0.1:*")
	out, e2 := c.Bind(ctx, "tcp://127.0.0.1:*")
	if e1 != nil || e2 != nil {
		b.Fatal(e1, e2)
	}
	return topical(b, topics, in, out)
}

func libzmqCache(b *testing.B, topics int) func(n int) {
	b.Helper()
	c := libzmq.NewContext()
	b.Cleanup(c.Shutdown)
	front, err := c.Socket(libzmq.SUB)
	if err == nil {
		err = front.Subscribe("")
	}
	var back libzmq.Socket
	if err == nil {
		back, err = c.Socket(libzmq.XPUB)
	}
	if err == nil {
		err = back.NoDrop()
	}
	var in, out string
	if err == nil {
		in, err = front.Bind("tcp://127.0.0.1:*")
	}
	if err == nil {
		out, err = back.Bind("tcp://127.0.0.1:*")
	}
	if err != nil {
		b.Fatal(err)
	}
	go libzmq.Cache(front, back)
	return topical(b, topics, in, out)
}

// BenchmarkCache passes messages of a topic and 100 bytes from a publisher to a
// subscriber of everything, both ours, through our last-value cache and through one of
// the guide's design in C on libzmq, in turn.
//
// ours-ns and peer-ns are the medians of the turns, and ratio is the median of
// peer/ours: above 1, ours is faster. ns/op is that of both together.
func BenchmarkCache(b *testing.B) {
	for _, topics := range []int{1000, 50_000} {
		b.Run(fmt.Sprint(topics, " topics"), func(b *testing.B) {
			us, them := ourCache(b, topics), libzmqCache(b, topics)
			us(1000)
			them(1000)
			b.ResetTimer()
			turns(b, us, them)
		})
	}
}
