package sockets_test

import (
	"context"
	"fmt"
	"time"

	"clustermap/sockets"
)

// A ventilator distributes work among the workers that connect to it.
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

// RecvInto reuses the memory of a message.
func ExamplePull_RecvInto() {
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
	for i := range 3 {
		_ = push.Send(ctx, []byte("job"), fmt.Append(nil, i))
	}

	var m sockets.Message
	for range 3 {
		if err := pull.RecvInto(ctx, &m); err != nil {
			panic(err)
		}
		fmt.Printf("%s\n", m)
	}
	// Output:
	// [job 0]
	// [job 1]
	// [job 2]
}

// If a peer does not exist, Close waits for one second, and CloseContext at most
// until its context is done.
func ExamplePush_CloseContext() {
	push, err := sockets.NewPush(sockets.Options{})
	if err != nil {
		panic(err)
	}
	_ = push.Connect("tcp://127.0.0.1:1") // nothing listens there
	_ = push.Send(context.Background(), []byte("job"))

	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	fmt.Println(push.CloseContext(ctx))
	// Output: context deadline exceeded
}

// SendBatch sends many messages with few locks and without allocation.
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

// A sink receives messages in batches, without copying them.
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

// SendBatch publishes a burst of readings with one pass over the subscribers.
func ExamplePub_SendBatch() {
	ctx := context.Background()
	pub, err := sockets.NewPub(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer pub.Close()
	_ = pub.Bind(ctx, "tcp://127.0.0.1:*")
	sub, err := sockets.NewSub(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer sub.Close()
	_ = sub.Subscribe("indoor")
	_ = sub.Connect(pub.LastEndpoint())
	_ = pub.WaitSubscribers(ctx, "indoor", 1)

	n, err := pub.SendBatch(ctx, [][]byte{[]byte("indoor 21"), []byte("outdoor -3"), []byte("indoor 22")})
	fmt.Println(n, err)
	for range 2 {
		m, err := sub.Recv(ctx)
		fmt.Printf("%s %v\n", m, err)
	}
	// Output:
	// 3 <nil>
	// [indoor 21] <nil>
	// [indoor 22] <nil>
}
