package sockets_test

import (
	"context"
	"fmt"

	"clustermap/sockets"
)

// A streamer: programs that have work connect to one endpoint, and programs that
// do the work connect to another.
func ExampleProxy() {
	ctx, cancel := context.WithCancel(context.Background())
	frontend, _ := sockets.NewPull(sockets.Options{})
	defer frontend.Close()
	backend, _ := sockets.NewPush(sockets.Options{})
	defer backend.Close()
	if err := frontend.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		panic(err)
	}
	if err := backend.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		panic(err)
	}
	ended := make(chan error)
	go func() { ended <- sockets.Proxy(ctx, frontend, backend) }()

	source, _ := sockets.NewPush(sockets.Options{})
	defer source.Close()
	_ = source.Connect(frontend.LastEndpoint())
	worker, _ := sockets.NewPull(sockets.Options{})
	defer worker.Close()
	_ = worker.Connect(backend.LastEndpoint())
	_ = source.Send(ctx, []byte("some"), []byte("work"))
	m, err := worker.Recv(ctx)
	fmt.Printf("%s %v\n", m, err)

	cancel()
	fmt.Println(<-ended)
	// Output:
	// [some work] <nil>
	// context canceled
}

func ExampleSteerableProxy() {
	ctx := context.Background()
	frontend, _ := sockets.NewPull(sockets.Options{})
	defer frontend.Close()
	backend, _ := sockets.NewPush(sockets.Options{})
	defer backend.Close()
	proxy, err := sockets.NewSteerableProxy(frontend, backend, sockets.ProxyOptions{})
	if err != nil {
		panic(err)
	}
	ended := make(chan error)
	go func() { ended <- proxy.Run(ctx) }()

	_ = proxy.Pause(ctx) // messages now wait in the queues
	proxy.Resume()
	fmt.Println(proxy.Statistics().FrontendIn.Messages)
	for {
		proxy.Terminate() // has no effect before Run has begun
		select {
		case err := <-ended:
			fmt.Println(err)
			return
		default:
		}
	}
	// Output:
	// 0
	// <nil>
}
