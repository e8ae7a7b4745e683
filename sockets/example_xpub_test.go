package sockets_test

import (
	"context"
	"fmt"

	"clustermap/sockets"
)

// A forwarder passes subscriptions upstream and messages downstream.
func ExampleXSub() {
	ctx, cancel := context.WithCancel(context.Background())
	pub, _ := sockets.NewPub(sockets.Options{WaitSubscriber: true})
	defer pub.Close()
	sub, _ := sockets.NewSub(sockets.Options{})
	defer sub.Close()

	up, err := sockets.NewXSub(sockets.Options{})
	if err != nil {
		panic(err)
	}
	down, err := sockets.NewXPub(sockets.Options{})
	if err != nil {
		panic(err)
	}
	_ = up.Bind(ctx, "tcp://127.0.0.1:*")
	_ = down.Bind(ctx, "tcp://127.0.0.1:*")
	done := make(chan struct{}, 2)
	forward := func(recv func(context.Context) (sockets.Message, error), send func(context.Context, ...[]byte) error) {
		for {
			m, err := recv(ctx)
			if err != nil {
				break // closed, or the context is done
			}
			_ = send(ctx, m...)
		}
		done <- struct{}{}
	}
	go forward(down.Recv, up.Send)
	go forward(up.Recv, down.Send)

	_ = pub.Connect(up.LastEndpoint())
	_ = sub.Connect(down.LastEndpoint())
	_ = sub.Subscribe("weather/")
	_ = pub.Send(ctx, []byte("weather/Brussels"), []byte("rain"))
	m, err := sub.Recv(ctx)
	fmt.Printf("%s %v\n", m, err)

	cancel()
	<-done
	<-done
	up.Close()
	down.Close()
	// Output: [weather/Brussels rain] <nil>
}

// A cache of last values: a peer that subscribes to a topic first receives its last
// value, which is not sent to other peers again.
func ExampleXPub() {
	ctx := context.Background()
	pub, err := sockets.NewXPub(sockets.Options{XPubManualLastValue: true})
	if err != nil {
		panic(err)
	}
	defer pub.Close()
	_ = pub.Bind(ctx, "tcp://127.0.0.1:*")
	last := map[string]string{"price/A": "17", "price/B": "4"}

	sub, _ := sockets.NewSub(sockets.Options{})
	defer sub.Close()
	_ = sub.Connect(pub.LastEndpoint())
	_ = sub.Subscribe("price/B")

	m, err := pub.Recv(ctx) // byte 1 and the topic
	if err != nil {
		panic(err)
	}
	topic := string(m[0][1:])
	_ = pub.Subscribe(topic)
	_ = pub.Send(ctx, []byte(topic), []byte(last[topic]))

	m, err = sub.Recv(ctx)
	fmt.Printf("%s %v\n", m, err)
	// Output: [price/B 4] <nil>
}
