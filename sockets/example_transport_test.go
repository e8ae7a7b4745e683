package sockets_test

import (
	"context"
	"fmt"

	"clustermap/sockets"
)

// Sockets on one machine need no port. They can use a Unix domain socket, here one
// whose name is chosen automatically.
func Example_ipc() {
	ctx := context.Background()
	router, err := sockets.NewRouter(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer router.Close()
	if err := router.Bind(ctx, "ipc://*"); err != nil {
		panic(err)
	}
	dealer, err := sockets.NewDealer(sockets.Options{Identity: []byte("client-1")})
	if err != nil {
		panic(err)
	}
	defer dealer.Close()
	_ = dealer.Connect(router.LastEndpoint()) // ipc:///tmp/ipc-.../socket
	_ = dealer.Send(ctx, []byte("hello"))
	m, err := router.Recv(ctx)
	fmt.Printf("%s %v\n", m, err)
	// Output: [client-1 hello] <nil>
}

// Sockets in one process exchange messages in memory. Here they use a separate
// namespace, so that no other part of the program can connect to them.
func ExampleInproc() {
	ctx := context.Background()
	o := sockets.Options{Inproc: new(sockets.Inproc)}
	push, err := sockets.NewPush(o)
	if err != nil {
		panic(err)
	}
	defer push.Close()
	pull, err := sockets.NewPull(o)
	if err != nil {
		panic(err)
	}
	defer pull.Close()
	_ = push.Connect("inproc://work") // may come before Bind
	_ = pull.Bind(ctx, "inproc://work")
	_ = push.Send(ctx, []byte("a job"))
	m, err := pull.Recv(ctx)
	fmt.Printf("%s %v\n", m, err)
	// Output: [a job] <nil>
}
