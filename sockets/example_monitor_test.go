package sockets_test

import (
	"context"
	"fmt"
	"log"

	"clustermap/sockets"
)

// This example receives the events of a socket from a channel.
func ExampleMonitorChan() {
	m := sockets.NewMonitorChan(64)
	server, err := sockets.NewRouter(sockets.Options{Monitor: m.Tell})
	if err != nil {
		log.Fatal(err)
	}
	if err := server.Bind(context.Background(), "tcp://127.0.0.1:*"); err != nil {
		log.Fatal(err)
	}
	fmt.Println((<-m.Events()).Kind)
	if err := server.Close(); err != nil {
		log.Fatal(err)
	}
	for e := range m.Events() {
		fmt.Println(e.Kind)
	}
	// Output:
	// listening
	// listener closed
	// monitor stopped
}
