// Command flags serves feature flags from a file, which it reads again when it changes,
// and reads them in other processes.
//
//	echo '{"dark-mode": {"percent": 50}}' > flags.json
//	go run ./examples/flags serve flags.json
//	go run ./examples/flags read            # in three other terminals; then edit flags.json
//
// Stop each with Ctrl-C.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"clustermap/chp"
)

// Flag is a feature flag.
type Flag struct{ Percent uint32 }

// On reports whether the flag is on for a user.
func (f Flag) On(user string) bool {
	h := fnv.New32()
	h.Write([]byte(user))
	return h.Sum32()%100 < f.Percent
}

func main() {
	host := flag.String("host", "127.0.0.1", "`address` of the server, with ports 5556 to 5558")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if flag.Arg(0) == "serve" {
		serve(ctx, *host, flag.Arg(1))
	} else {
		read(ctx, *host)
	}
}

// serve runs a server with the flags in a file.
func serve(ctx context.Context, host, file string) {
	server := must(chp.NewServer(chp.ServerOptions{Host: host, Port: 5556}))
	flags := must(chp.NewView(server, "/flags/", chp.ViewOptions[Flag]{}))
	defer flags.Close()
	go func() {
		for last := []byte(nil); ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			text, err := os.ReadFile(file)
			if err != nil || bytes.Equal(text, last) {
				continue
			}
			last = text
			next := map[string]Flag{}
			if err := json.Unmarshal(text, &next); err != nil {
				log.Print(err) // keep the flags
				continue
			}
			for name, f := range next {
				must(0, flags.Set(ctx, "/flags/"+name, f))
			}
			for key := range flags.All() {
				if _, ok := next[strings.TrimPrefix(key, "/flags/")]; !ok {
					must(0, flags.Delete(ctx, key))
				}
			}
		}
	}()
	must(0, server.Serve(ctx))
}

// read prints each change, and for whom the flags are on.
func read(ctx context.Context, host string) {
	client := must(chp.NewClient(chp.ClientOptions{Servers: []string{"tcp://" + host + ":5556"}, Subtrees: []string{"/flags/"}}))
	defer client.Close()
	flags := must(chp.NewView(client, "/flags/", chp.ViewOptions[Flag]{
		OnChange: func(c chp.ViewChange[Flag]) {
			if c.New == nil {
				fmt.Println(c.Key, "is gone")
			} else {
				fmt.Println(c.Key, "is on for", c.New.Percent, "%")
			}
		},
	}))
	defer flags.Close()
	for ctx.Err() == nil {
		// This is what a service does for each request: no lock, and no decoding.
		if f, ok := flags.Get("/flags/dark-mode"); ok && f.On("alice") {
			fmt.Println("dark mode for alice")
		}
		time.Sleep(time.Second)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
