package snail_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"clustermap/patterns/snail"
	"clustermap/sockets"
)

// A subscriber that stops when it is more than a tenth of a second behind.
func Example() {
	ctx := context.Background()
	pub, _ := sockets.NewPub(sockets.Options{WaitSubscriber: true})
	defer pub.Close()
	_ = pub.Bind(ctx, "tcp://127.0.0.1:*")

	sub, err := snail.NewSubscriber(snail.Options{
		Endpoints: []string{pub.LastEndpoint()},
		MaxDelay:  100 * time.Millisecond,
	})
	if err != nil {
		panic(err)
	}
	defer sub.Close()

	stamped := snail.NewPublisher(pub, snail.PublisherOptions{})
	for range 3 {
		_ = stamped.Send(ctx, []byte("price"), []byte("17")) // adds the stamp
	}
	for {
		if _, err := sub.Recv(ctx); errors.Is(err, snail.ErrLagged) {
			fmt.Println("fell behind")
			return
		}
		time.Sleep(200 * time.Millisecond) // work that is too slow
	}
	// Output: fell behind
}
