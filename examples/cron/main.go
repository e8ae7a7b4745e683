// Command cron runs a job at each interval, in one of its processes: the leader. No interval has two runs.
//
//	go run ./cmd/chp serve                  # the server
//	go run ./examples/cron -every 5s        # in several other terminals
//
// Stop each with Ctrl-C; kill -9 the leader to see another one take over.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"clustermap/chp"
	"clustermap/chp/recipes"
)

func main() {
	server := flag.String("server", "tcp://127.0.0.1:5556", "`endpoint` of the server")
	every := flag.Duration("every", time.Minute, "interval of the job")
	ttl := flag.Duration("ttl", recipes.DefaultTTL, "time after which a dead leader is replaced")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client, err := chp.NewClient(chp.ClientOptions{Servers: []string{*server}, Subtrees: []string{"/cron/"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	election, err := recipes.NewElection(client, "/cron/leader", recipes.Options{TTL: *ttl})
	if err != nil {
		log.Fatal(err)
	}
	defer election.Close() // the next leader need not wait
	for ctx.Err() == nil {
		err = election.Do(ctx, func(ctx context.Context, held *recipes.Lock) error {
			fmt.Println("leader", held.Token())
			for ctx.Err() == nil {
				due := time.Now().Truncate(*every).Add(*every)
				select {
				case <-ctx.Done():
				case <-time.After(time.Until(due)):
					key := "/cron/runs/" + due.UTC().Format(time.RFC3339Nano) // nobody else may have the interval
					if _, err := client.SetIf(ctx, key, []byte("run"), chp.IfAbsent(), held.Held(), chp.WithTTL(10**every)); err == nil {
						fmt.Println("run", key)
					}
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, recipes.ErrLost) && ctx.Err() == nil {
			log.Fatal(err)
		}
	}
}
