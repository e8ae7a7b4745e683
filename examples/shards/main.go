// Command shards is a pool of workers that share the shards of a job, such as the partitions of a
// table: each shard is one worker's. When a worker comes or goes, the others make room, or take over.
//
//	go run ./cmd/chp serve                  # the server
//	go run ./examples/shards -shards 8      # in several other terminals
//
// Stop each with Ctrl-C; kill -9 one to see the others take over its shards after 15 seconds.
package main

import (
	"context"
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
	shards := flag.Int("shards", 8, "number of shards")
	ttl := flag.Duration("ttl", recipes.DefaultTTL, "time after which the shards of a dead worker move")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client, err := chp.NewClient(chp.ClientOptions{Servers: []string{*server}, Subtrees: []string{"/shards/"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	pool, err := recipes.NewPool(client, "/shards", *shards, recipes.Options{TTL: *ttl})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	err = pool.Run(ctx, func(ctx context.Context, shard int, held *recipes.Lock) error {
		fmt.Println("begin", shard, held.Token())
		defer fmt.Println("end", shard)
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second): // the work
			}
		}
		return nil
	})
	if ctx.Err() == nil {
		log.Fatal(err)
	}
}
