package lastvalue_test

import (
	"context"
	"fmt"
	"time"

	"clustermap/patterns/lastvalue"
	"clustermap/sockets"
)

// A cache between a publisher and a later subscriber.
func Example() {
	ctx := context.Background()
	cache, err := lastvalue.New(lastvalue.Options{})
	if err != nil {
		panic(err)
	}
	defer cache.Close()
	in, _ := cache.BindPublisher(ctx, "tcp://127.0.0.1:*")
	out, _ := cache.Bind(ctx, "tcp://127.0.0.1:*")

	pub, _ := sockets.NewPub(sockets.Options{WaitSubscriber: true})
	defer pub.Close()
	_ = pub.Connect(in)
	for _, m := range [][2]string{{"price/A", "16"}, {"price/A", "17"}, {"price/B", "4"}} {
		_ = pub.Send(ctx, []byte(m[0]), []byte(m[1]))
	}
	for cache.Stats().Messages < 3 { // wait until they have arrived
		time.Sleep(time.Millisecond)
	}

	sub, _ := sockets.NewSub(sockets.Options{})
	defer sub.Close()
	_ = sub.Subscribe("price/")
	_ = sub.Connect(out)
	for range 2 {
		m, _ := sub.Recv(ctx)
		fmt.Printf("%s\n", m)
	}
	// Output:
	// [price/A 17]
	// [price/B 4]
}
