// Command client is the client of Clone model 3: it follows the server and sends
// it updates of its own.
package main

import (
	"time"

	"clustermap/examples/clone/internal/kv"
	"clustermap/sockets"
)

func main() {
	ctx, host := kv.Start("`address` of the server")
	publisher := kv.Must(sockets.NewPush(sockets.Options{}))
	defer publisher.Close()
	kv.Check(publisher.Connect("tcp://" + host + ":5558"))
	client := kv.Follow(ctx, kv.Three, host, "", "ICANHAZ?")
	defer client.End()
	for tick := time.Tick(250 * time.Millisecond); ; {
		select {
		case <-tick: // our own update is stored when it comes back with its number
			kv.Check(publisher.Send(ctx, kv.Random(0, "").Three()...))
		case <-client.Updates.Readable():
			client.Update()
		case <-ctx.Done():
			return
		}
	}
}
