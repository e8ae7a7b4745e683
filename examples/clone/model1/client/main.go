// Command client is the client of Clone model 1: it stores every update that it
// receives.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"clustermap/examples/clone/internal/kv"
	"clustermap/sockets"
)

func main() {
	host := flag.String("host", "127.0.0.1", "`address` of the server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	subscriber := kv.Must(sockets.NewSub(sockets.Options{}))
	defer subscriber.Close()
	kv.Check(subscriber.Subscribe(""))
	kv.Check(subscriber.Connect("tcp://" + *host + ":5556"))
	fmt.Println("ready: waiting for updates")

	pairs := map[string]kv.Message{}
	var sequence int64
	for {
		select {
		case <-subscriber.Readable():
			if m, ok := kv.ParseThree(kv.Must(subscriber.Recv(ctx))); ok {
				sequence = m.Sequence
				pairs[m.Key] = m
				fmt.Println("update", m)
			}
		case <-ctx.Done():
			fmt.Println(kv.Summary(sequence, pairs))
			return
		}
	}
}
