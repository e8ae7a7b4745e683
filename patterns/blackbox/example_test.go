package blackbox_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"clustermap/patterns/blackbox"
	"clustermap/sockets"
)

// Two shards with two workers each add up prices by name. Each worker has its own sums,
// since all prices of a name go to the same worker.
func Example() {
	ctx := context.Background()
	feed, err := sockets.NewPub(sockets.Options{})
	if err != nil {
		panic(err)
	}
	defer feed.Close()
	if err := feed.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		panic(err)
	}

	sums := make([]map[string]int, 4) // by worker
	var count atomic.Int64
	done := make(chan struct{})
	box, err := blackbox.New(blackbox.Options{
		Connect: []string{feed.LastEndpoint()},
		Shards:  blackbox.SpreadAll(2), // by the first byte of the topic
		Workers: 2,
		Cores:   blackbox.AllowedCores(),
		Handle: func(b *blackbox.Batch) {
			mine := sums[b.Worker()]
			if mine == nil {
				mine = map[string]int{}
				sums[b.Worker()] = mine
			}
			for i := range b.Len() {
				name, rest := b.Message(i).Next() // a view: valid until Handle returns
				price, _ := rest.Next()
				n, _ := strconv.Atoi(string(price))
				mine[string(name)] += n
			}
			if count.Add(int64(b.Len())) == 300 {
				close(done)
			}
		},
	})
	if err != nil {
		panic(err)
	}
	if err := box.WaitSubscribed(ctx); err != nil {
		panic(err)
	}
	for i := range 100 {
		for _, name := range []string{"AMS", "BER", "CPH"} {
			if err := feed.Send(ctx, []byte(name), []byte(strconv.Itoa(i))); err != nil {
				panic(err)
			}
		}
	}
	<-done
	if err := box.Close(); err != nil {
		panic(err)
	}
	all := map[string]int{}
	for _, mine := range sums {
		for name, n := range mine {
			all[name] = n
		}
	}
	fmt.Println(all)
	// Output: map[AMS:4950 BER:4950 CPH:4950]
}
