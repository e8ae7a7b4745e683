// Command server is the server of Clone model 4: as in model 3, and a client may
// ask for the pairs of one subtree, which are those whose keys begin with it.
package main

import (
	"fmt"

	"clustermap/examples/clone/internal/kv"
)

func main() {
	ctx, host := kv.Start("`address` to serve on")
	server := kv.Serve(ctx, kv.Three, host)
	defer server.End()
	collector := server.Collect(host)
	defer collector.Close()
	fmt.Println("ready: collecting")
	for {
		select {
		case <-collector.Readable():
			if m, ok := kv.ParseThree(kv.Must(collector.Recv(ctx))); ok {
				server.Publish(m)
			}
		case <-server.Requests.Readable():
			server.Answer(true)
		case <-ctx.Done():
			return
		}
	}
}
