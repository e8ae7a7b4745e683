package chp_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"time"

	"clustermap/chp"
)

// A program holds the map itself, writes to it and watches it; clients in the same
// process, on the same machine or elsewhere share it.
func Example_embeddedServer() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	s, err := chp.NewServer(chp.ServerOptions{
		Endpoints: []string{"tcp://127.0.0.1:*", "inproc://example"},
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	go func() {
		if err := s.Serve(context.Background()); err != nil {
			log.Fatal(err)
		}
	}()
	if err := s.Set(ctx, "/config/colour", []byte("red")); err != nil {
		log.Fatal(err)
	}

	<-s.Ready()
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{"inproc://example"}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.SetSync(ctx, "/config/size", []byte("42")); err != nil {
		log.Fatal(err)
	}
	for e := range s.Sorted("/config/") {
		fmt.Printf("%s = %s\n", e.Key, e.Value)
	}
	// Output:
	// /config/colour = red
	// /config/size = 42
}

// A watch reports the present keys, then each change. The cause tells a deletion from the
// end of a time to live.
func ExampleServer_Watch() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	s, err := chp.NewServer(chp.ServerOptions{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if err := s.Listen(ctx); err != nil {
		log.Fatal(err)
	}
	go s.Serve(context.Background())

	w, err := s.Watch("/workers/")
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	s.Set(ctx, "/workers/b", []byte("idle"))
	s.Delete(ctx, "/workers/b")
	s.Set(ctx, "/workers/a", []byte("busy"), chp.WithTTL(20*time.Millisecond))
	for range 5 {
		e, err := w.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		switch {
		case e.Op == chp.OpSynced:
			fmt.Println("up to date")
		case e.Op == chp.OpSet:
			fmt.Printf("%s is %s\n", e.Key, e.Value)
		case e.Cause == chp.CauseExpired:
			fmt.Printf("%s has not been heard of\n", e.Key)
		default:
			fmt.Printf("%s was deleted\n", e.Key)
		}
	}
	// Output:
	// up to date
	// /workers/b is idle
	// /workers/b was deleted
	// /workers/a is busy
	// /workers/a has not been heard of
}

// Many updates in one call.
func ExampleServer_Apply() {
	ctx := context.Background()
	s, err := chp.NewServer(chp.ServerOptions{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	var b chp.Batch
	for i := range 1000 {
		b.Set(fmt.Sprintf("/n/%d", i), []byte("value"))
	}
	b.Delete("/n/7")
	if err := s.Apply(ctx, &b); err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Len())
	// Output: 999
}
