// Command server is the server of Clone model 5: as in model 4, and an update may
// delete a key, or give it a time to live.
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
	collector := kv.Must(sockets.NewPull(sockets.Options{}))
	defer collector.Close()
	kv.Check(collector.Bind(ctx, "tcp://"+*host+":5558"))
	fmt.Println("ready: collecting")

	// One goroutine takes the updates and sends the snapshots, so each snapshot is the
	// state between two updates.
	pairs, deadlines := map[string]kv.Message{}, map[string]time.Time{}
	var sequence int64
	update := func(m kv.Message) {
		sequence++
		m.Sequence = sequence
		kv.Check(publisher.Send(ctx, m.Five()...))
		m.Apply(pairs)
		delete(deadlines, m.Key)
		if ttl := m.TTL(); ttl > 0 && len(m.Body) > 0 {
			deadlines[m.Key] = time.Now().Add(ttl)
		}
	}
	for tick := time.Tick(100 * time.Millisecond); ; {
		select {
		case <-collector.Readable():
			if m, ok := kv.ParseFive(kv.Must(collector.Recv(ctx))); ok {
				update(m)
			}
		case <-tick:
			for key, deadline := range deadlines {
				if time.Now().After(deadline) {
					update(kv.Message{Key: key}) // without a body: deleted
				}
			}
		case <-snapshot.Readable():
			request := kv.Must(snapshot.Recv(ctx)) // identity, ICANHAZ?, subtree
			if len(request) == 3 && string(request[1]) == "ICANHAZ?" {
				kv.SendSnapshot(ctx, snapshot, request[0], kv.Message.Five, string(request[2]), sequence, pairs)
			}
		case <-ctx.Done():
			fmt.Println(kv.Summary(sequence, pairs))
			return
		}
	}
}
