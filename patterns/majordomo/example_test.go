package majordomo_test

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"clustermap/patterns/majordomo"
)

// A broker, a worker and a client in one program. Usually they run on different machines.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	broker, err := majordomo.NewBroker(majordomo.BrokerOptions{})
	if err != nil {
		panic(err)
	}
	defer broker.Close()
	endpoint, err := broker.Bind(ctx, "tcp://127.0.0.1:*")
	if err != nil {
		panic(err)
	}

	worker, err := majordomo.NewWorker("upper", func(ctx context.Context, request [][]byte) ([][]byte, error) {
		return [][]byte{bytes.ToUpper(request[0])}, nil
	}, majordomo.WorkerOptions{Broker: endpoint})
	if err != nil {
		panic(err)
	}
	defer worker.Close()

	client, err := majordomo.NewClient(majordomo.ClientOptions{Broker: endpoint})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	reply, err := client.Request(ctx, "upper", []byte("hello"))
	fmt.Printf("%s %v\n", reply, err)
	// Output:
	// [HELLO] <nil>
}

// An error of a worker's handler is an error at the client.
func ExampleError() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	broker, err := majordomo.NewBroker(majordomo.BrokerOptions{})
	if err != nil {
		panic(err)
	}
	defer broker.Close()
	endpoint, err := broker.Bind(ctx, "tcp://127.0.0.1:*")
	if err != nil {
		panic(err)
	}
	worker, err := majordomo.NewWorker("stock", func(ctx context.Context, request [][]byte) ([][]byte, error) {
		return nil, &majordomo.Error{Code: 410, Text: "sold out"}
	}, majordomo.WorkerOptions{Broker: endpoint})
	if err != nil {
		panic(err)
	}
	defer worker.Close()
	client, err := majordomo.NewClient(majordomo.ClientOptions{Broker: endpoint})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	_, err = client.Request(ctx, "stock", []byte("umbrella"))
	fmt.Println(err)
	// Output:
	// majordomo: error 410: sold out
}
