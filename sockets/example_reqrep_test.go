package sockets_test

import (
	"context"
	"fmt"
	"time"

	"clustermap/sockets"
)

func ExampleRep() {
	ctx := context.Background()
	rep, err := sockets.NewRep(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer rep.Close()
	_ = rep.Bind(ctx, "tcp://127.0.0.1:*")
	go func() {
		for {
			request, err := rep.Recv(ctx)
			if err != nil {
				return // sockets.ErrClosed
			}
			_ = rep.Send(ctx, []byte("hello,"), request[0])
		}
	}()

	req, err := sockets.NewReq(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer req.Close()
	_ = req.Connect(rep.LastEndpoint())
	_ = req.Send(ctx, []byte("world"))
	reply, err := req.Recv(ctx)
	fmt.Printf("%s %v\n", reply, err)
	// Output: [hello, world] <nil>
}

// A client repeats a request until it receives a reply. With ReqCorrelate, a late
// reply to the first attempt is not taken for the reply to the next request.
func ExampleReq() {
	rep, err := sockets.NewRep(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer rep.Close()
	_ = rep.Bind(context.Background(), "tcp://127.0.0.1:*")
	go func() {
		ctx := context.Background()
		_, _ = rep.Recv(ctx)
		_ = rep.Send(ctx, []byte("pong"))
	}()

	req, err := sockets.NewReq(sockets.Options{
		ReqRelaxed:   true,
		ReqCorrelate: true,
		RecvTimeout:  10 * time.Second,
	})
	if err != nil {
		panic(err)
	}
	defer req.Close()
	_ = req.Connect(rep.LastEndpoint())
	for range 3 {
		_ = req.Send(context.Background(), []byte("ping"))
		reply, err := req.Recv(context.Background())
		if err != nil {
			continue // sockets.ErrTimeout: try again
		}
		fmt.Printf("%s\n", reply)
		break
	}
	// Output: [pong]
}

// Two PAIR sockets exchange messages in any order.
func ExamplePair() {
	ctx := context.Background()
	a, err := sockets.NewPair(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer a.Close()
	_ = a.Bind(ctx, "tcp://127.0.0.1:*")
	b, err := sockets.NewPair(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer b.Close()
	_ = b.Connect(a.LastEndpoint())

	_ = b.Send(ctx, []byte("one"))
	_ = b.Send(ctx, []byte("two"))
	for range 2 {
		m, _ := a.Recv(ctx)
		fmt.Printf("%s\n", m)
	}
	_ = a.Send(ctx, []byte("thanks"))
	m, err := b.Recv(ctx)
	fmt.Printf("%s %v\n", m, err)
	// Output:
	// [one]
	// [two]
	// [thanks] <nil>
}

// A ROUTER that assigns an identity to its peer can send to it before the peer has
// connected.
func ExampleRouter_ConnectAs() {
	ctx := context.Background()
	server, err := sockets.NewRouter(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer server.Close()
	_ = server.Bind(ctx, "tcp://127.0.0.1:*")

	client, err := sockets.NewRouter(sockets.Options{Identity: []byte("client"), Mandatory: true})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	_ = client.ConnectAs(server.LastEndpoint(), []byte("server"))
	_ = client.Send(ctx, []byte("server"), []byte("hello"))
	m, err := server.Recv(ctx)
	fmt.Printf("%s %v\n", m, err)
	// Output: [client hello] <nil>
}
