// Command audit prints who changes what in a map, and undoes the last change of a key.
//
//	go run ./cmd/chp serve --data map --stamp --history 20         # the server
//	go run ./examples/audit                                        # in other terminals
//	go run ./cmd/chp set /flag/dark on
//	go run ./examples/audit -undo /flag/dark
//
// Stop it with Ctrl-C.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"

	"clustermap/chp"
)

func main() {
	server := flag.String("server", "tcp://127.0.0.1:5556", "`endpoint` of the server")
	key := flag.String("undo", "", "`key` to set back to the version before the last")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client, err := chp.NewClient(chp.ClientOptions{Servers: []string{*server}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if *key != "" {
		err = undo(ctx, client, *key)
	} else {
		err = follow(ctx, client)
	}
	if err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

// follow prints every change. A client that was away prints the difference.
func follow(ctx context.Context, client *chp.Client) error {
	w, err := client.Watch()
	for err == nil {
		var e chp.Event
		if e, err = w.Next(ctx); err == nil {
			at, by, _ := e.Properties.Stamped()
			fmt.Println(e.Op, string(e.Key), string(e.Value), "by", cmp.Or(by, "nobody known"), at.Format("15:04:05"))
		}
	}
	return err
}

// undo makes the version before the last one the newest.
func undo(ctx context.Context, client *chp.Client, key string) error {
	versions, err := client.History(ctx, key)
	if err != nil || len(versions) < 2 {
		return cmp.Or(err, fmt.Errorf("no version of %s before the last is kept", key))
	}
	before, last := versions[len(versions)-2], versions[len(versions)-1]
	unchanged := chp.IfSequence(last.Sequence) // else somebody's change would be lost
	if last.Op == chp.OpDelete {
		unchanged = chp.IfAbsent()
	}
	fmt.Println(key, "becomes what it was at", before.Sequence)
	if before.Op == chp.OpDelete {
		_, err = client.DeleteIf(ctx, key, unchanged)
	} else {
		_, err = client.SetIf(ctx, key, before.Value, unchanged, chp.WithProperties(before.Properties))
	}
	return err
}
