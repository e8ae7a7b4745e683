package sockets_test

import (
	"context"
	"fmt"

	"clustermap/sockets"
)

func ExamplePub() {
	ctx := context.Background()
	pub, err := sockets.NewPub(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer pub.Close()
	if err := pub.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		panic(err)
	}

	sub, err := sockets.NewSub(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer sub.Close()
	_ = sub.Subscribe("weather/")
	_ = sub.Connect(pub.LastEndpoint())
	// The subscriber receives all messages published from here on.
	if err := sub.WaitSubscribed(ctx); err != nil {
		panic(err)
	}

	_ = pub.Send(ctx, []byte("traffic/A1"), []byte("slow"))
	_ = pub.Send(ctx, []byte("weather/Brussels"), []byte("rain"))
	m, err := sub.Recv(ctx)
	fmt.Printf("%s %v\n", m, err)
	// Output: [weather/Brussels rain] <nil>
}

func ExampleRouter() {
	ctx := context.Background()
	router, err := sockets.NewRouter(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer router.Close()
	if err := router.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		panic(err)
	}
	go func() {
		for {
			m, err := router.Recv(ctx) // the sender's identity, and the message
			if err != nil {
				return // sockets.ErrClosed
			}
			_ = router.Send(ctx, m[0], []byte("hello,"), m[1])
		}
	}()

	dealer, err := sockets.NewDealer(sockets.Options{Identity: []byte("client-1")})
	if err != nil {
		panic(err)
	}
	defer dealer.Close()
	_ = dealer.Connect(router.LastEndpoint())
	_ = dealer.Send(ctx, []byte("world"))
	m, err := dealer.Recv(ctx)
	fmt.Printf("%s %v\n", m, err)
	// Output: [hello, world] <nil>
}

// RecvBatch receives many messages at once, without copying or allocation.
func ExampleSub_RecvBatch() {
	ctx := context.Background()
	pub, err := sockets.NewPub(sockets.Options{WaitSubscriber: true})
	if err != nil {
		panic(err)
	}
	defer pub.Close()
	_ = pub.Bind(ctx, "tcp://127.0.0.1:*")
	sub, err := sockets.NewSub(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer sub.Close()
	_ = sub.Subscribe("")
	_ = sub.Connect(pub.LastEndpoint())
	for i := range 3 {
		_ = pub.Send(ctx, []byte("topic"), fmt.Append(nil, i))
	}

	var b sockets.Batch
	defer b.Release()
	for got := 0; got < 3; got += b.Len() {
		if err := sub.RecvBatch(ctx, &b); err != nil {
			panic(err)
		}
		for i := range b.Len() {
			topic, rest := b.Message(i).Next() // valid until b is used again
			value, _ := rest.Next()
			fmt.Printf("%s %s\n", topic, value)
		}
	}
	// Output:
	// topic 0
	// topic 1
	// topic 2
}
