// Command client is the client of Clone model 6, which is CHP (RFC 12): a replica
// of a subtree that turns to the second server when the first one is gone.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"time"

	"clustermap/chp"
	"clustermap/examples/clone/internal/kv"
)

func main() {
	subtree := flag.String("subtree", "/client/", "`subtree` to follow and to set")
	ctx, host := kv.Start("`address` of both servers")

	client := kv.Must(chp.NewClient(chp.ClientOptions{
		Servers:  []string{"tcp://" + host + ":5556", "tcp://" + host + ":5566"},
		Subtrees: []string{*subtree},
		OnState:  func(state chp.State, server string) { fmt.Println("state:", state, server) },
	}))
	defer client.Close()
	watch := kv.Must(client.Watch())
	defer watch.Close()
	go report(ctx, watch)

	for tick := time.Tick(250 * time.Millisecond); ; {
		select {
		case <-tick:
			m := kv.Random(0, *subtree)
			err := client.Set(ctx, m.Key, m.Body, chp.WithTTL(time.Duration(1+rand.IntN(30))*time.Second))
			if ctx.Err() == nil { // it also fails when Ctrl-C ends its wait for a server
				kv.Check(err)
			}
		case <-ctx.Done():
			pairs := map[string]kv.Message{}
			client.Range(func(key, value []byte) bool {
				pairs[string(key)] = kv.Message{Body: append([]byte(nil), value...)}
				return true
			})
			fmt.Println(kv.Summary(client.Sequence(), pairs))
			return
		}
	}
}

// report prints each change of the replica.
func report(ctx context.Context, watch *chp.Watch) {
	for {
		e, err := watch.Next(ctx)
		switch {
		case err != nil:
			return
		case e.Op == chp.OpSynced:
			fmt.Println("ready: snapshot", e.Sequence)
		default:
			fmt.Println("update", kv.Message{Key: string(e.Key), Sequence: e.Sequence, Body: e.Value})
		}
	}
}
