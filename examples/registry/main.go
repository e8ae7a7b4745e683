// Command registry announces an instance of a service, or prints which come, leave and fail.
//
//	go run ./cmd/chp serve                                    # the server
//	go run ./examples/registry announce shop/1 10.0.0.7:80    # in other terminals
//	go run ./examples/registry watch
//
// Stop each with Ctrl-C; kill -9 an announcer to see it fail.
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
	const ttl = 3 * time.Second
	server := flag.String("server", "tcp://127.0.0.1:5556", "`endpoint` of the server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client, err := chp.NewClient(chp.ClientOptions{Servers: []string{*server}, Subtrees: []string{"/services/"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if flag.Arg(0) == "announce" {
		instance, err := client.KeepAlive(ctx, "/services/"+flag.Arg(1), []byte(flag.Arg(2)), ttl)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("announced", flag.Arg(1))
		<-ctx.Done()
		instance.Close() // deletes the key
		return
	}
	up, silent := map[string]string{}, map[string]*time.Timer{}
	onChange := func(c chp.ViewChange[string]) {
		back := silent[c.Key] != nil && silent[c.Key].Stop()
		switch {
		case c.New != nil && (!back || up[c.Key] != *c.New):
			up[c.Key] = *c.New
			fmt.Println("up", c.Key, *c.New)
		case c.New == nil && c.Cause == chp.CauseDeleted:
			fmt.Println("left", c.Key)
		case c.New == nil: // it expired, or the server has lost its map; the instance may come back
			silent[c.Key] = time.AfterFunc(ttl, func() { fmt.Println("failed", c.Key) })
		}
	}
	if _, err = chp.NewView(client, "/services/", chp.ViewOptions[string]{Codec: chp.TextCodec[string]{}, OnChange: onChange}); err != nil {
		log.Fatal(err)
	}
	<-ctx.Done()
}
