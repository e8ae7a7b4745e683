package sockets_test

import (
	"context"
	"fmt"
	"log"
	"strconv"

	"clustermap/sockets"
)

// pipeline returns a PUSH and a PULL that are connected.
func pipeline(ctx context.Context) (push *sockets.Push, pull *sockets.Pull, end func()) {
	pull, err := sockets.NewPull(sockets.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := pull.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		log.Fatal(err)
	}
	push, err = sockets.NewPush(sockets.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := push.Connect(pull.LastEndpoint()); err != nil {
		log.Fatal(err)
	}
	return push, pull, func() {
		push.Close()
		pull.Close()
	}
}

// A loop receives messages without copying them.
func ExamplePull_Messages() {
	ctx := context.Background()
	push, pull, end := pipeline(ctx)
	defer end()
	for _, text := range []string{"one", "two", "stop", "three"} {
		if err := push.Send(ctx, []byte(text)); err != nil {
			log.Fatal(err)
		}
	}
	for m, err := range pull.Messages(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", m[0]) // valid until the end of the body
		if string(m[0]) == "stop" {
			break
		}
	}
	m, err := pull.Recv(ctx) // the loop has not lost the later messages
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", m[0])
	// Output:
	// one
	// two
	// stop
	// three
}

// A batch has all messages of one peer that were received at a time.
func ExamplePull_Batches() {
	ctx := context.Background()
	push, pull, end := pipeline(ctx)
	defer end()
	for i := range 1000 {
		if err := push.Send(ctx, []byte(strconv.Itoa(i))); err != nil {
			log.Fatal(err)
		}
	}
	messages := 0
	for b, err := range pull.Batches(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if messages += b.Len(); messages == 1000 {
			break
		}
	}
	fmt.Println(messages)
	// Output: 1000
}

// A Writer sends many small messages at the cost of a few.
func ExampleWriter() {
	ctx := context.Background()
	push, pull, end := pipeline(ctx)
	defer end()

	w := sockets.NewWriter(push)
	for i := range 3 {
		if err := w.Write(ctx, []byte("key"), []byte(strconv.Itoa(i))); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(w.Buffered())
	if err := w.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	for range 3 {
		m, err := pull.Recv(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", m)
	}
	// Output:
	// 3 24
	// [key 0]
	// [key 1]
	// [key 2]
}

// OnReady connects a socket to an event loop of another kind. After each call,
// the loop receives until there is nothing left.
func ExamplePull_OnReady() {
	ctx := context.Background()
	push, pull, end := pipeline(ctx)
	defer end()

	posted := make(chan struct{}, 1) // stands for the event loop's queue
	stop, err := pull.OnReady(sockets.PollIn, func(sockets.PollEvents) {
		select {
		case posted <- struct{}{}:
		default: // the loop has not yet handled the last one
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	if err := push.Send(ctx, []byte("event")); err != nil {
		log.Fatal(err)
	}
	<-posted
	for {
		m, _, err := pull.TryRecvFrom()
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Printf("%s\n", m[0])
	}
	fmt.Println(pull.Events() == 0)
	// Output:
	// event
	// sockets: operation would block
	// true
}

// Lookup tells whether a message to a peer can be routed.
func ExampleRouter_Lookup() {
	ctx := context.Background()
	router, err := sockets.NewRouter(sockets.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer router.Close()
	if err := router.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		log.Fatal(err)
	}
	dealer, err := sockets.NewDealer(sockets.Options{Identity: []byte("worker")})
	if err != nil {
		log.Fatal(err)
	}
	defer dealer.Close()
	if err := dealer.Connect(router.LastEndpoint()); err != nil {
		log.Fatal(err)
	}
	if err := router.WaitPeers(ctx, 1); err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"worker", "other"} {
		_, events, err := router.Lookup([]byte(name))
		fmt.Println(name, events == sockets.PollOut, err)
	}
	// Output:
	// worker true <nil>
	// other false sockets: no such peer
}

// Endpoints shows how the connections of a socket are.
func ExamplePush_Endpoints() {
	ctx := context.Background()
	push, _, end := pipeline(ctx)
	defer end()
	if err := push.WaitPeers(ctx, 1); err != nil {
		log.Fatal(err)
	}
	for _, e := range push.Endpoints() {
		fmt.Println(e.State, e.Peers, e.Err)
	}
	// Output: connected 1 <nil>
}
