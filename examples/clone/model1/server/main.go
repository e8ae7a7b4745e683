// Command server is the server of Clone model 1: it numbers random updates and
// publishes them. A client that subscribes late has missed the earlier updates.
package main

import (
	"fmt"
	"time"

	"clustermap/examples/clone/internal/kv"
	"clustermap/sockets"
)

func main() {
	ctx, host := kv.Start("`address` to serve on")
	publisher := kv.Must(sockets.NewPub(sockets.Options{}))
	defer publisher.Close()
	kv.Check(publisher.Bind(ctx, "tcp://"+host+":5556"))
	fmt.Println("ready: waiting for a subscriber")
	// Updates published before the first subscription are lost.
	kv.Check(publisher.WaitSubscribers(ctx, "", 1))

	pairs := map[string]kv.Message{}
	var sequence int64
	for tick := time.Tick(10 * time.Millisecond); ; {
		select {
		case <-tick:
			sequence++
			m := kv.Random(sequence, "")
			kv.Check(publisher.Send(ctx, m.Three()...))
			pairs[m.Key] = m
		case <-ctx.Done():
			fmt.Println(kv.Summary(sequence, pairs))
			return
		}
	}
}
