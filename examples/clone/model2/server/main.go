// Command server is the server of Clone model 2: as in model 1, and it sends a
// snapshot of all pairs to each client that asks for one.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"clustermap/examples/clone/internal/kv"
	"clustermap/sockets"
)

func main() {
	host := flag.String("host", "127.0.0.1", "`address` to serve on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	// With Mandatory a snapshot waits for room in the client's queue: without it, a
	// ROUTER drops messages for a full queue. A client that reads nothing for a second
	// loses the rest.
	snapshot := kv.Must(sockets.NewRouter(sockets.Options{Mandatory: true, SendTimeout: time.Second}))
	defer snapshot.Close()
	kv.Check(snapshot.Bind(ctx, "tcp://"+*host+":5556"))
	publisher := kv.Must(sockets.NewPub(sockets.Options{}))
	defer publisher.Close()
	kv.Check(publisher.Bind(ctx, "tcp://"+*host+":5557"))
	fmt.Println("ready: publishing")

	// One goroutine takes the updates and sends the snapshots, so each snapshot is the
	// state between two updates.
	pairs := map[string]kv.Message{}
	var sequence int64
	for tick := time.Tick(10 * time.Millisecond); ; {
		select {
		case <-tick:
			sequence++
			m := kv.Random(sequence, "")
			kv.Check(publisher.Send(ctx, m.Three()...))
			pairs[m.Key] = m
		case <-snapshot.Readable():
			request := kv.Must(snapshot.Recv(ctx)) // identity, ICANHAZ?
			if len(request) == 2 && string(request[1]) == "ICANHAZ?" {
				kv.SendSnapshot(ctx, snapshot, request[0], kv.Message.Three, "", sequence, pairs)
			}
		case <-ctx.Done():
			fmt.Println(kv.Summary(sequence, pairs))
			return
		}
	}
}
