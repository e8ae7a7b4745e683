package sockets_test

import (
	"context"
	"fmt"
	"log"

	"clustermap/sockets"
)

// RecvFrom also returns the peer that sent the message.
func ExampleRouter_RecvFrom() {
	ctx := context.Background()
	server, err := sockets.NewRouter(sockets.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	if err := server.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		log.Fatal(err)
	}
	client, err := sockets.NewDealer(sockets.Options{
		Identity: []byte("client"),
		Metadata: map[string]string{"X-Release": "1.2"},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if err := client.Connect(server.LastEndpoint()); err != nil {
		log.Fatal(err)
	}
	if err := client.Send(ctx, []byte("hello")); err != nil {
		log.Fatal(err)
	}

	m, peer, err := server.RecvFrom(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", m)
	for _, name := range []string{"Peer-Address", "Socket-Type", "X-Release", "X-Tag"} {
		value, ok := peer.Property(name)
		fmt.Println(name, value, ok)
	}
	// Output:
	// [client hello]
	// Peer-Address 127.0.0.1 true
	// Socket-Type DEALER true
	// X-Release 1.2 true
	// X-Tag  false
}
