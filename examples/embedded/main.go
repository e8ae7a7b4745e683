// Command embedded has a server in its own process: it writes, reads and watches the map
// without a connection, while other programs do so over the network.
//
//	go run ./examples/embedded
//	go run ./cmd/chp watch                  # in another terminal
//	go run ./cmd/chp set /greeting hello
//
// Stop it with Ctrl-C.
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
)

func main() {
	host := flag.String("host", "127.0.0.1", "`address` to serve on, at ports 5556 to 5558")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	server, err := chp.NewServer(chp.ServerOptions{Host: *host, Port: 5556})
	if err != nil {
		log.Fatal(err)
	}
	go tick(ctx, server)
	go watch(ctx, server)
	if err := server.Serve(ctx); err != nil {
		log.Fatal(err)
	}
}

// tick sets a key every second.
func tick(ctx context.Context, server *chp.Server) {
	for second := range time.Tick(time.Second) {
		if err := server.Set(ctx, "/clock", second.AppendFormat(nil, time.TimeOnly)); err != nil {
			return // ctx is done, or the server has ended
		}
	}
}

// watch prints the changes of this program and of others.
func watch(ctx context.Context, server *chp.Server) {
	w, err := server.Watch()
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	for {
		e, err := w.Next(ctx)
		if err != nil {
			return
		}
		fmt.Printf("%v %s=%s\n", e.Op, e.Key, e.Value)
	}
}
