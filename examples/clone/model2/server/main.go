// Command server is the server of Clone model 2: as in model 1, and it sends a
// snapshot of all pairs to each client that asks for one.
package main

import (
	"fmt"
	"time"

	"clustermap/examples/clone/internal/kv"
)

func main() {
	ctx, host := kv.Start("`address` to serve on")
	server := kv.Serve(ctx, kv.Three, host)
	defer server.End()
	fmt.Println("ready: publishing")
	for tick := time.Tick(10 * time.Millisecond); ; {
		select {
		case <-tick:
			server.Publish(kv.Random(0, ""))
		case <-server.Requests.Readable():
			server.Answer(false)
		case <-ctx.Done():
			return
		}
	}
}
