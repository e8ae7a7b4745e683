// Command client is the client of Clone model 2: it takes a snapshot and applies
// the updates that are newer.
package main

import (
	"clustermap/examples/clone/internal/kv"
)

func main() {
	ctx, host := kv.Start("`address` of the server")
	client := kv.Follow(ctx, kv.Three, host, "", "ICANHAZ?")
	defer client.End()
	for {
		select {
		case <-client.Updates.Readable():
			client.Update()
		case <-ctx.Done():
			return
		}
	}
}
