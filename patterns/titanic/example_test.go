package titanic_test

import (
	"context"
	"fmt"
	"os"

	"clustermap/patterns/majordomo"
	"clustermap/patterns/titanic"
)

// Broker, server, worker and client in one program. The request is stored before there is
// a worker for it.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "titanic")
	check(err)
	defer os.RemoveAll(dir)
	broker, err := majordomo.NewBroker(majordomo.BrokerOptions{})
	check(err)
	defer broker.Close()
	endpoint, err := broker.Bind(ctx, "tcp://127.0.0.1:*")
	check(err)

	server, err := titanic.New(titanic.Options{Broker: endpoint, Dir: dir})
	check(err)
	defer server.Close()

	client, err := titanic.NewClient(titanic.ClientOptions{Broker: endpoint})
	check(err)
	defer client.Close()
	id, err := client.Submit(ctx, "greet", []byte("world"))
	check(err)
	_, err = client.Fetch(ctx, id)
	fmt.Println(err)

	worker, err := majordomo.NewWorker("greet", func(_ context.Context, request [][]byte) ([][]byte, error) {
		return [][]byte{fmt.Appendf(nil, "hello, %s", request[0])}, nil
	}, majordomo.WorkerOptions{Broker: endpoint})
	check(err)
	defer worker.Close()

	reply, err := client.Wait(ctx, id)
	check(err)
	fmt.Printf("%s\n", reply[0])
	check(client.Discard(ctx, id))
	// Output:
	// titanic: no reply yet
	// hello, world
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
