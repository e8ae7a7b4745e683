package freelance_test

import (
	"context"
	"fmt"
	"time"

	"clustermap/patterns/freelance"
)

// Two servers and a client in one program. Usually they run on different machines,
// with endpoints such as tcp://server1.example:5555.
func Example() {
	ctx := context.Background()
	hello := func(_ context.Context, request [][]byte) (reply [][]byte, err error) {
		return [][]byte{[]byte("hello " + string(request[0]))}, nil
	}
	for _, endpoint := range []string{"inproc://example-1", "inproc://example-2"} {
		server, err := freelance.NewServer(ctx, freelance.ServerOptions{Bind: endpoint, Handler: hello})
		if err != nil {
			panic(err)
		}
		defer server.Close()
	}

	client, err := freelance.NewClient(freelance.ClientOptions{
		Servers: []string{"inproc://example-1", "inproc://example-2"},
	})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	reply, err := client.Request(ctx, []byte("world"))
	fmt.Printf("%s %v\n", reply, err)
	// Output: [hello world] <nil>
}

// If no server replies, the error describes the state of each.
func ExampleNoReplyError() {
	client, err := freelance.NewClient(freelance.ClientOptions{
		Servers: []string{"inproc://nobody-is-here"},
		Timeout: 50 * time.Millisecond,
	})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	_, err = client.Request(context.Background(), []byte("hello"))
	fmt.Println(err)
	// Output: freelance: no reply in time: inproc://nobody-is-here: no connection
}
