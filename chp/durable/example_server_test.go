package durable_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"

	"clustermap/chp"
	"clustermap/chp/commit"
	"clustermap/chp/durable"
)

// A server in this process keeps its map on disk: the second server has the key that the
// first one was given. NewServer replays the log.
func Example_server() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()

	serve := func(use func(*chp.Server)) {
		l, err := durable.Open(dir+"/data", durable.Options{})
		if err != nil {
			log.Fatal(err)
		}
		defer l.Close() // after the server
		s, err := chp.NewServer(chp.ServerOptions{
			Log:    l,
			Sync:   commit.Always(), // no update is seen before it is on disk
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			log.Fatal(err)
		}
		defer s.Close()
		go func() {
			if err := s.Serve(ctx); err != nil {
				log.Fatal(err)
			}
		}()
		<-s.Ready()
		use(s)
	}

	serve(func(s *chp.Server) {
		if _, err := s.SetSync(ctx, "/greeting", []byte("hello")); err != nil {
			log.Fatal(err)
		}
	})
	serve(func(s *chp.Server) {
		e, _ := s.Lookup("/greeting")
		fmt.Printf("%s\n", e.Value)
	})
	// Output: hello
}
