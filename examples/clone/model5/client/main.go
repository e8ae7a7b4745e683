// Command client is the client of Clone model 5: as in model 4, and its pairs live
// for 30 seconds at most.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"time"

	"clustermap/examples/clone/internal/kv"
	"clustermap/sockets"
)

func main() {
	subtree := flag.String("subtree", "/client/", "`prefix` of the keys to follow and to set")
	ctx, host := kv.Start("`address` of the server")
	publisher := kv.Must(sockets.NewPush(sockets.Options{}))
	defer publisher.Close()
	kv.Check(publisher.Connect("tcp://" + host + ":5558"))
	client := kv.Follow(ctx, kv.Five, host, *subtree, "ICANHAZ?", *subtree)
	defer client.End()
	for tick := time.Tick(250 * time.Millisecond); ; {
		select {
		case <-tick: // our own update is stored when it comes back with its number
			m := kv.Random(0, *subtree)
			m.Properties = fmt.Sprintf("ttl=%d\n", 1+rand.IntN(30))
			kv.Check(publisher.Send(ctx, m.Five()...))
		case <-client.Updates.Readable():
			client.Update()
		case <-ctx.Done():
			return
		}
	}
}
