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
		_, err := client.Update(ctx, *key, func([]byte) ([]byte, error) { // again, if somebody else was first
			versions, err := client.History(ctx, *key)
			if err != nil || len(versions) < 2 {
				return nil, cmp.Or(err, fmt.Errorf("no version of %s before the last is kept", *key))
			}
			return versions[len(versions)-2].Value, nil // of a deletion none, which deletes the key
		})
		if err != nil {
			log.Fatal(err)
		}
		return
	}
	watch, err := client.Watch() // of a client that was away it reports the difference
	for err == nil {
		var e chp.Event
		if e, err = watch.Next(ctx); err == nil {
			at, by, _ := e.Properties.Stamped()
			fmt.Println(e.Op, string(e.Key), string(e.Value), "by", cmp.Or(by, "nobody known"), at.Format("15:04:05"))
		}
	}
	if ctx.Err() == nil {
		log.Fatal(err)
	}
}
