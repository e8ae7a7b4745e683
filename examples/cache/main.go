// Command cache shares the results of slow work among processes: a result that one
// process has computed is in the memory of all, until it expires or is deleted.
//
//	go run ./cmd/chp serve                      # the server
//	go run ./examples/cache                     # in other terminals: type numbers
//	go run ./cmd/chp del /squares/12            # forget one, everywhere
//
// It ends with its input, or with Ctrl-C.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"clustermap/chp"
)

func main() {
	server := flag.String("server", "tcp://127.0.0.1:5556", "`endpoint` of the server")
	flag.Parse()
	client, err := chp.NewClient(chp.ClientOptions{Servers: []string{*server}, Subtrees: []string{"/squares/"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := client.WaitActive(ctx); err != nil {
		log.Print("begins without the cache: ", err)
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		n, _ := strconv.Atoi(lines.Text())
		value := cached(client, "/squares/"+strconv.Itoa(n), func() []byte {
			time.Sleep(time.Second) // the slow work
			fmt.Println("computed", n)
			return strconv.AppendInt(nil, int64(n*n), 10)
		})
		fmt.Printf("%d² = %s\n", n, value)
	}
}

// cached returns the value of a key, or of f, which it then stores for a minute. Two
// processes may compute the same value at the same time; the last one stays.
func cached(client *chp.Client, key string, f func() []byte) []byte {
	if value, ok := client.Get(key); ok {
		return value // from the replica in this process
	}
	value := f()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := client.Set(ctx, key, value, chp.WithTTL(time.Minute)); err != nil {
		log.Print("not cached: ", err) // without a server it still works, only slower
	}
	return value
}
