// Command watch keeps a sum of all numbers in a map up to date from its changes. It shows
// how a watch loop recovers from missed changes.
//
//	go run ./cmd/chp serve             # the server
//	go run ./examples/watch            # in another terminal
//	go run ./cmd/chp set /n/a 42       # in a third one
//
// Stop it with Ctrl-C. Run it with -work 100ms and load many keys with chp load to see it
// lag and recover.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"time"

	"clustermap/chp"
)

func main() {
	server := flag.String("server", "tcp://127.0.0.1:5556", "`endpoint` of the server")
	work := flag.Duration("work", 0, "time that each change takes")
	queue := flag.Int("queue", chp.DefaultWatchQueue, "bound on the changes that wait, in `bytes`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client, err := chp.NewClient(chp.ClientOptions{Servers: []string{*server}, WatchQueue: *queue})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for {
		err := follow(ctx, client, *work)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, chp.ErrLagged):
			// Changes are lost: begin again, with the state that the map has now.
			fmt.Println("lagged: start over")
		default:
			log.Fatal(err)
		}
	}
}

// follow reads changes until there is an error. The client itself handles gaps in the
// server's updates, lost connections and restarts: it fetches a new snapshot, and the
// watch reports the differences, with the cause resync.
func follow(ctx context.Context, client *chp.Client, work time.Duration) error {
	w, err := client.Watch("/n/")
	if err != nil {
		return err
	}
	defer w.Close()
	numbers, sum, synced := map[string]int{}, 0, false
	for {
		e, err := w.Next(ctx)
		if err != nil {
			return err
		}
		switch e.Op {
		case chp.OpSet:
			n, _ := strconv.Atoi(string(e.Value))
			sum += n - numbers[string(e.Key)]
			numbers[string(e.Key)] = n
		case chp.OpDelete:
			sum -= numbers[string(e.Key)]
			delete(numbers, string(e.Key))
		case chp.OpSynced:
			synced = true // all keys that there were at the beginning are counted
		}
		if time.Sleep(work); synced {
			fmt.Println("sum", sum, e.Cause)
		}
	}
}
