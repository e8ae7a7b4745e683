package chp_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"clustermap/chp"
)

// A program is registered while it holds a lease. When the lease ends, its holder is told, the key is gone, and what
// it sets with the lease is refused.
func Example_lease() {
	server, stop := serveExample()
	defer stop()
	ctx := context.Background()
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{server}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	lease, err := c.Grant(ctx, 30*time.Second) // renewed every 10 s, by one message for all of its keys
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.SetSync(ctx, "/workers/1", []byte("here"), chp.WithLease(lease))
	fmt.Println(err, lease.Err())

	// Somebody ends it, or the network does.
	err = c.RevokeLease(ctx, lease.ID())
	if err == nil {
		err = c.Sync(ctx)
	}
	_, there := c.Get("/workers/1")
	_, late := c.SetSync(ctx, "/workers/1", []byte("still here"), chp.WithLease(lease))
	fmt.Println(err, there, errors.Is(late, chp.ErrLeaseEnded)) // <nil> false true
	// Output:
	// <nil> <nil>
	// <nil> false true
}
