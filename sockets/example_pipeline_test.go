package sockets_test

import (
	"context"
	"fmt"

	"clustermap/sockets"
)

// A ventilator shares out work among those that connect to it.
func ExamplePush() {
	ctx := context.Background()
	push, err := sockets.NewPush(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer push.Close()
	_ = push.Bind(ctx, "tcp://127.0.0.1:*")

	worker, err := sockets.NewPull(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer worker.Close()
	_ = worker.Connect(push.LastEndpoint())

	_ = push.Send(ctx, []byte("job"), []byte("42")) // waits for the worker
	m, err := worker.Recv(ctx)
	fmt.Printf("%s %v\n", m, err)
	// Output: [job 42] <nil>
}

// Many messages at the price of a few locks, and without an allocation.
func ExamplePush_SendBatch() {
	ctx := context.Background()
	pull, err := sockets.NewPull(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer pull.Close()
	_ = pull.Bind(ctx, "tcp://127.0.0.1:*")
	push, err := sockets.NewPush(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer push.Close()
	_ = push.Connect(pull.LastEndpoint())

	n, err := push.SendBatch(ctx, [][]byte{[]byte("a"), []byte("b"), []byte("c")})
	fmt.Println(n, err)
	for range n {
		m, err := pull.Recv(ctx)
		fmt.Printf("%s %v\n", m, err)
	}
	// Output:
	// 3 <nil>
	// [a] <nil>
	// [b] <nil>
	// [c] <nil>
}

// A sink takes what comes together at once, as views.
func ExamplePull() {
	ctx := context.Background()
	sink, err := sockets.NewPull(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer sink.Close()
	_ = sink.Bind(ctx, "tcp://127.0.0.1:*")
	push, err := sockets.NewPush(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer push.Close()
	_ = push.Connect(sink.LastEndpoint())
	_ = push.Send(ctx, []byte("result"))

	var b sockets.Batch
	defer b.Release()
	if err := sink.RecvBatch(ctx, &b); err != nil {
		panic(err)
	}
	for i := range b.Len() {
		body, _ := b.Message(i).Next()
		fmt.Printf("%s\n", body)
	}
	// Output: result
}
