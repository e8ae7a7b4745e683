// Command registry is a service registry. Each instance of a service announces its
// address with a time to live and refreshes it. A watcher tells apart an instance that
// has left from one that has failed, and raises no alarm when the server restarts.
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

const ttl = 3 * time.Second

func main() {
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
		err = announce(ctx, client, "/services/"+flag.Arg(1), flag.Arg(2))
	} else {
		err = watch(ctx, client)
	}
	if err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

// announce has the key in the map until ctx is done. If the process dies, it expires.
func announce(ctx context.Context, c *chp.Client, key, address string) error {
	lease, err := c.KeepAlive(ctx, key, []byte(address), ttl)
	if err != nil {
		return err
	}
	fmt.Println("announced", key)
	<-ctx.Done()
	return lease.Close() // deletes the key
}

// watch prints which instances come, leave and fail.
func watch(ctx context.Context, c *chp.Client) error {
	w, err := c.Watch()
	if err != nil {
		return err
	}
	defer w.Close()
	up := map[string]string{}
	silent := map[string]*time.Timer{} // of keys that are gone, but were not deleted
	for {
		e, err := w.Next(ctx)
		if err != nil {
			return err
		}
		key := string(e.Key)
		timer := silent[key]
		failed := timer != nil && !timer.Stop()
		delete(silent, key)
		switch {
		case e.Op == chp.OpSet && (failed || up[key] != string(e.Value)): // otherwise a refresh
			up[key] = string(e.Value)
			fmt.Println("up", key, up[key])
		case e.Op == chp.OpDelete && e.Cause == chp.CauseDeleted:
			delete(up, key)
			fmt.Println("left", key)
		case e.Op == chp.OpDelete:
			// It expired, or a server that has restarted does not have it. The instance
			// may announce itself again.
			silent[key] = time.AfterFunc(ttl, func() { fmt.Println("failed", key) })
		}
	}
}
