// Command client is the client of Clone model 4: as in model 3, for one subtree.
package main

import (
	"flag"
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
	client := kv.Follow(ctx, kv.Three, host, *subtree, "ICANHAZ?", *subtree)
	defer client.End()
	for tick := time.Tick(250 * time.Millisecond); ; {
		select {
		case <-tick: // our own update is stored when it comes back with its number
			kv.Check(publisher.Send(ctx, kv.Random(0, *subtree).Three()...))
		case <-client.Updates.Readable():
			client.Update()
		case <-ctx.Done():
			return
		}
	}
}
