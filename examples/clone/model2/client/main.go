// Command client is the client of Clone model 2: it takes a snapshot and applies
// the updates that are newer.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"clustermap/examples/clone/internal/kv"
	"clustermap/sockets"
)

func main() {
	host := flag.String("host", "127.0.0.1", "`address` of the server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	subscriber := kv.Must(sockets.NewSub(sockets.Options{}))
	defer subscriber.Close()
	kv.Check(subscriber.Subscribe(""))
	kv.Check(subscriber.Connect("tcp://" + *host + ":5557"))
	snapshot := kv.Must(sockets.NewDealer(sockets.Options{}))
	defer snapshot.Close()
	kv.Check(snapshot.Connect("tcp://" + *host + ":5556"))

	pairs := map[string]kv.Message{}
	sequence := int64(-1) // before the snapshot
	for {
		select {
		case <-subscriber.Readable():
			m, ok := kv.ParseThree(kv.Must(subscriber.Recv(ctx)))
			// The first update shows that the subscription is in force. A snapshot
			// that is asked for now has this update and all before it, and the later ones
			// come by the subscription.
			if ok && sequence < 0 {
				kv.Check(snapshot.Send(ctx, []byte("ICANHAZ?")))
				sequence = kv.TakeSnapshot(ctx, snapshot, kv.ParseThree, pairs)
				fmt.Println("ready: snapshot", sequence)
			}
			if ok && m.Sequence > sequence {
				sequence = m.Sequence
				pairs[m.Key] = m
				fmt.Println("update", m)
			}
		case <-ctx.Done():
			fmt.Println(kv.Summary(sequence, pairs))
			return
		}
	}
}
