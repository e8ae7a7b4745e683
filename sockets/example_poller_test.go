package sockets_test

import (
	"context"
	"fmt"

	"clustermap/sockets"
)

// pairOfRouters returns two ROUTER sockets, to each of which a DEALER sends one
// message.
func pairOfRouters(ctx context.Context) (first, second *sockets.Router, end func()) {
	first, _ = sockets.NewRouter(sockets.Options{})
	second, _ = sockets.NewRouter(sockets.Options{})
	dealer, _ := sockets.NewDealer(sockets.Options{})
	for _, r := range []*sockets.Router{first, second} {
		if err := r.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
			panic(err)
		}
		if err := dealer.Connect(r.LastEndpoint()); err != nil {
			panic(err)
		}
	}
	_ = dealer.Send(ctx, []byte("one"))
	_ = dealer.Send(ctx, []byte("two"))
	return first, second, func() {
		dealer.Close()
		first.Close()
		second.Close()
	}
}

func ExamplePoller() {
	ctx := context.Background()
	first, second, end := pairOfRouters(ctx)
	defer end()

	var poller sockets.Poller
	defer poller.Close()
	_ = poller.Add(first, sockets.PollIn)
	_ = poller.Add(second, sockets.PollIn)
	got := map[string]bool{}
	for len(got) < 2 {
		ready, err := poller.Wait(ctx)
		if err != nil {
			panic(err)
		}
		for _, r := range ready {
			m, _ := r.Socket.(*sockets.Router).Recv(ctx)
			got[string(m[1])] = true
		}
	}
	fmt.Println(got)
	// Output: map[one:true two:true]
}

// A program can wait for sockets and other events with select.
func ExampleRouter_Readable() {
	ctx := context.Background()
	first, second, end := pairOfRouters(ctx)
	defer end()

	got := map[string]bool{}
	for len(got) < 2 {
		var m sockets.Message
		select {
		case <-first.Readable():
			m, _ = first.Recv(ctx)
		case <-second.Readable():
			m, _ = second.Recv(ctx)
		case <-ctx.Done():
			return
		}
		got[string(m[1])] = true
	}
	fmt.Println(got)
	// Output: map[one:true two:true]
}
