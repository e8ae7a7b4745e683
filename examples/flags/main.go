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
	"hash/crc32"
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
func (f Flag) On(user string) bool { return crc32.ChecksumIEEE([]byte(user))%100 < f.Percent }

func main() {
	host := flag.String("host", "127.0.0.1", "`address` of the server, with ports 5556 to 5558")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if flag.Arg(0) == "serve" {
		server := must(chp.NewServer(chp.ServerOptions{Host: *host, Port: 5556}))
		flags := must(chp.NewView(server, "/flags/", chp.ViewOptions[Flag]{}))
		go follow(ctx, flag.Arg(1), flags)
		must(0, server.Serve(ctx))
	} else {
		client := must(chp.NewClient(chp.ClientOptions{Servers: []string{"tcp://" + *host + ":5556"}, Subtrees: []string{"/flags/"}}))
		flags := must(chp.NewView(client, "/flags/", chp.ViewOptions[Flag]{OnChange: func(c chp.ViewChange[Flag]) {
			fmt.Printf("%s: %v\n", c.Key, c.New) // nil if it is gone
		}}))
		for ; ctx.Err() == nil; time.Sleep(time.Second) {
			// A service does this for each request: no lock, and no decoding.
			if f, ok := flags.Get("/flags/dark-mode"); ok && f.On("alice") {
				fmt.Println("dark mode for alice")
			}
		}
	}
}

// follow sets the flags to those of a file each time it has changed. Reading a small file
// once a second costs next to nothing, and works on all systems and file systems.
func follow(ctx context.Context, file string, flags *chp.View[Flag]) {
	for last := []byte(nil); ctx.Err() == nil; time.Sleep(time.Second) {
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
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
