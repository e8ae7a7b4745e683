package sockets_test

import (
	"context"
	"fmt"

	"clustermap/sockets"
)

// Sockets of one machine need no port: a Unix domain socket does, here one with
// a name of the system's choice.
func ExampleOptions_ipc() {
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
