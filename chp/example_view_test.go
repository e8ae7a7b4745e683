package chp_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"clustermap/chp"
)

type limits struct {
	Rate  int `json:"rate"`
	Burst int `json:"burst"`
}

// A view has the keys of a subtree as Go values, which follow the map.
func ExampleNewView() {
	server, stop := serveExample()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{server}, Subtrees: []string{"/limits/"}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	changed := make(chan string)
	v, err := chp.NewView(c, "/limits/", chp.ViewOptions[limits]{
		OnChange: func(c chp.ViewChange[limits]) {
			if c.New != nil {
				changed <- fmt.Sprintf("%s: %d per second", c.Key, c.New.Rate)
			} else {
				changed <- fmt.Sprintf("%s: %v", c.Key, c.Cause)
			}
		},
		OnError: func(err *chp.DecodeError) { log.Print(err) }, // the key keeps its last valid value
	})
	if err != nil {
		log.Fatal(err)
	}
	defer v.Close()
	if err := v.WaitSynced(ctx); err != nil {
		log.Fatal(err) // says which server is missing, and why
	}

	if err := v.Set(ctx, "/limits/search", limits{Rate: 100, Burst: 20}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-changed)
	l, ok := v.Get("/limits/search") // no lock, no decoding
	fmt.Println(l.Burst, ok)
	if err := v.Delete(ctx, "/limits/search"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-changed)
	// Output:
	// /limits/search: 100 per second
	// 20 true
	// /limits/search: deleted
}

// Two who change one value at the same time lose nothing.
func ExampleView_Update() {
	ctx, c, stop := exampleClient()
	defer stop()
	v, err := chp.NewView(c, "/limits/", chp.ViewOptions[limits]{})
	if err != nil {
		log.Fatal(err)
	}
	defer v.Close()
	raise := func() error {
		_, err := v.Update(ctx, "/limits/search", func(l limits, ok bool) (limits, error) {
			l.Rate += 10
			return l, nil
		})
		return err
	}
	other := make(chan error)
	go func() { other <- raise() }()
	if err := errors.Join(raise(), <-other); err != nil {
		log.Fatal(err)
	}
	value, _ := c.Get("/limits/search")
	fmt.Println(string(value))
	// Output: {"rate":20,"burst":0}
}

// Lookup says why there is no value; Apply sends many updates in one call.
func ExampleClient_Lookup() {
	server, stop := serveExample()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{server}, Subtrees: []string{"/a/"}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	var b chp.Batch
	b.Set("/a/2", []byte("two"))
	b.Set("/a/1", []byte("one"))
	if err := c.Apply(ctx, &b); err != nil {
		log.Fatal(err)
	}
	if err := c.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	for e := range c.Sorted("/a/") {
		fmt.Printf("%s = %s\n", e.Key, e.Value)
	}
	for _, key := range []string{"/a/1", "/a/3", "/b/1"} {
		e, presence := c.Lookup(key)
		fmt.Printf("%s: %q %v\n", key, e.Value, presence)
	}
	// Output:
	// /a/1 = one
	// /a/2 = two
	// /a/1: "one" found
	// /a/3: "" absent
	// /b/1: "" outside
}

// ApplySync sends many updates in one call, and returns when all of them can be read.
func ExampleClient_ApplySync() {
	server, stop := serveExample()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{server}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	var b chp.Batch
	for i := range 1000 {
		b.Set(fmt.Sprintf("/squares/%d", i), fmt.Append(nil, i*i))
	}
	if _, err := c.ApplySync(ctx, &b); err != nil {
		log.Fatal(err)
	}
	value, _ := c.Get("/squares/12")
	fmt.Printf("%d keys, 12 squared is %s\n", c.Len(), value)
	// Output: 1000 keys, 12 squared is 144
}

// A service registers itself. If its process dies, the key expires.
func ExampleClient_KeepAlive() {
	server, stop := serveExample()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{server}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	lease, err := c.KeepAlive(ctx, "/services/search/1", []byte("10.0.0.7:8080"), 30*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	for e := range c.Prefix("/services/search/") {
		fmt.Printf("%s at %s\n", e.Key, e.Value)
	}
	lease.Close() // deletes the key; Stop would leave it to a successor
	// Output: /services/search/1 at 10.0.0.7:8080
}

// WaitActive says of each server why the client does not follow it.
func ExampleNotActiveError() {
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{"tcp://127.0.0.1:1"}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	failed := &chp.NotActiveError{}
	for !errors.Is(failed, chp.ErrUnreachable) { // until the first attempt has failed
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		errors.As(c.WaitActive(ctx), &failed)
		cancel()
	}
	for _, s := range failed.Servers {
		fmt.Println(s.Server, errors.Is(s.Err, chp.ErrUnreachable))
	}
	// Output: tcp://127.0.0.1:1 true
}
