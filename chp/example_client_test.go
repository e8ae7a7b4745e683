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

// serveExample starts a server for an example, and returns where it is.
func serveExample() (server string, stop func()) {
	s, err := chp.NewServer(chp.ServerOptions{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		if err := s.Serve(context.Background()); err != nil {
			log.Fatal(err)
		}
	}()
	<-s.Ready()
	return s.Endpoints().Snapshot, func() { s.Close() }
}

// A client keeps a replica of the map, and changes it through the server.
func Example_client() {
	server, stop := serveExample()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()

	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{server}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	if _, err := c.SetSync(ctx, "/config/colour", []byte("red")); err != nil {
		log.Fatal(err)
	}
	value, ok := c.Get("/config/colour") // from the replica: no network, no lock
	fmt.Printf("%s %v\n", value, ok)

	if _, err := c.DeleteSync(ctx, "/config/colour"); err != nil {
		log.Fatal(err)
	}
	_, ok = c.Get("/config/colour")
	fmt.Println(ok)
	// Output:
	// red true
	// false
}

// Many updates go out without waiting for each; Flush waits for all of them.
func ExampleClient_Flush() {
	server, stop := serveExample()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{server}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	for i := range 1000 {
		if err := c.Set(ctx, fmt.Sprintf("/n/%d", i), []byte("value")); err != nil {
			log.Fatal(err)
		}
	}
	if err := c.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Len())
	// Output: 1000
}

// A watch reports the present keys, then every change.
func ExampleClient_Watch() {
	server, stop := serveExample()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{server}, Subtrees: []string{"/hosts/"}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.SetSync(ctx, "/hosts/one", []byte("up")); err != nil {
		log.Fatal(err)
	}

	w, err := c.Watch()
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if err := c.Set(ctx, "/hosts/two", []byte("up"), chp.WithTTL(time.Hour)); err != nil {
		log.Fatal(err)
	}
	if err := c.Delete(ctx, "/hosts/one"); err != nil {
		log.Fatal(err)
	}
	for range 4 {
		e, err := w.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%v %q %q\n", e.Op, e.Key, e.Value)
	}
	// Output:
	// set "/hosts/one" "up"
	// synced "" ""
	// set "/hosts/two" "up"
	// delete "/hosts/one" ""
}
