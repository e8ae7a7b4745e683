// Command server is a server of Clone model 6, which is CHP (RFC 12). Package chp
// does all of it: snapshots, subtrees, times to live, heartbeats.
package main

import (
	"flag"
	"fmt"

	"clustermap/chp"
	"clustermap/examples/clone/internal/kv"
)

func main() {
	port := flag.Int("port", 5556, "first of three `ports`; the guide's backup has 5566")
	ctx, host := kv.Start("`address` to serve on")

	server := kv.Must(chp.NewServer(chp.ServerOptions{Host: host, Port: *port}))
	kv.Check(server.Listen(ctx))
	fmt.Println("ready:", server.Endpoints().Snapshot)
	kv.Check(server.Serve(ctx))
	fmt.Printf("end: sequence=%d keys=%d\n", server.Sequence(), server.Len())
}
