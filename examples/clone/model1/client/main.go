// Command client is the client of Clone model 1: it stores every update that it
// receives.
package main

import (
	"fmt"

	"clustermap/examples/clone/internal/kv"
	"clustermap/sockets"
)

func main() {
	ctx, host := kv.Start("`address` of the server")
	subscriber := kv.Must(sockets.NewSub(sockets.Options{}))
	defer subscriber.Close()
	kv.Check(subscriber.Subscribe(""))
	kv.Check(subscriber.Connect("tcp://" + host + ":5556"))
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
