package espresso_test

import (
	"context"
	"fmt"

	"clustermap/patterns/espresso"
	"clustermap/sockets"
)

// A tap between a publisher and its subscribers, which usually are other programs.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	frontend, _ := sockets.NewXSub(sockets.Options{})
	defer frontend.Close()
	backend, _ := sockets.NewXPub(sockets.Options{})
	defer backend.Close()
	_ = frontend.Bind(ctx, "inproc://espresso-frontend")
	_ = backend.Bind(ctx, "inproc://espresso-backend")
	tap, err := espresso.NewTap(frontend, backend, espresso.Options{})
	if err != nil {
		panic(err)
	}
	observer := tap.Observe(espresso.Filter{})
	defer observer.Close()
	ended := make(chan error)
	go func() { ended <- tap.Run(ctx) }()

	subscriber, _ := sockets.NewSub(sockets.Options{})
	defer subscriber.Close()
	_ = subscriber.Subscribe("A")
	_ = subscriber.Connect("inproc://espresso-backend")
	publisher, _ := sockets.NewPub(sockets.Options{})
	defer publisher.Close()
	_ = publisher.Connect("inproc://espresso-frontend")
	_ = publisher.WaitSubscribers(ctx, "A", 1)
	_ = publisher.Send(ctx, []byte("A-91164"))
	_, _ = subscriber.Recv(ctx)

	var e espresso.Event
	for range 2 {
		if err := observer.Next(ctx, &e); err != nil {
			panic(err)
		}
		fmt.Printf("%v from the %v: %s, %d bytes\n", e.Op, e.From, e.Topic(), e.Size())
	}
	stop()
	fmt.Println(<-ended)
	// Output:
	// subscribe from the backend: A, 2 bytes
	// message from the frontend: A-91164, 7 bytes
	// context canceled
}
