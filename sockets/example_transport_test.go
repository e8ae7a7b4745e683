package sockets_test

import (
	"context"
	"fmt"

	"clustermap/sockets"
)

// Sockets of one machine need no port: a Unix domain socket does, here one with
// a name of the system's choice.
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

// Sockets of one process hand messages over in memory. Here they do so in a
// namespace of their own, so that no other part of the program can meet them.
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
