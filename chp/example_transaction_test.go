package chp_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"clustermap/chp"
)

// exampleClient starts a server and a client for an example.
func exampleClient() (ctx context.Context, c *chp.Client, stop func()) {
	server, end := serveExample()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{server}})
	if err != nil {
		log.Fatal(err)
	}
	return ctx, c, func() {
		c.Close()
		cancel()
		end()
	}
}

// Who sets a key that was changed since it was read is told so, and nothing is lost.
func ExampleClient_SetIf() {
	ctx, c, stop := exampleClient()
	defer stop()
	read, err := c.SetIf(ctx, "/flags/new-menu", []byte("off"), chp.IfAbsent())
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.SetSync(ctx, "/flags/new-menu", []byte("beta")); err != nil { // somebody else
		log.Fatal(err)
	}
	_, err = c.SetIf(ctx, "/flags/new-menu", []byte("on"), chp.IfSequence(read), chp.WithConflictValue())
	var conflict *chp.ConflictError
	if errors.As(err, &conflict) {
		fmt.Printf("%s is %s by now\n", conflict.Key, conflict.Value)
	}
	// Output: /flags/new-menu is beta by now
}

// Money moves from one account to another, or not at all.
func ExampleClient_ApplyIf() {
	ctx, c, stop := exampleClient()
	defer stop()
	var b chp.Batch
	b.Set("/accounts/anna", []byte("100"))
	b.Set("/accounts/otto", []byte("0"))
	if _, err := c.ApplyIf(ctx, &b); err != nil {
		log.Fatal(err)
	}
	b.Reset()
	b.Set("/accounts/anna", []byte("70"))
	b.Set("/accounts/otto", []byte("30"))
	_, err := c.ApplyIf(ctx, &b,
		chp.IfValue([]byte("100")).On("/accounts/anna"), chp.IfValue([]byte("0")).On("/accounts/otto"))
	anna, _ := c.Get("/accounts/anna")
	otto, _ := c.Get("/accounts/otto")
	fmt.Println(err, string(anna), string(otto))
	_, err = c.ApplyIf(ctx, &b, chp.IfValue([]byte("100")).On("/accounts/anna"))
	fmt.Println(errors.As(err, new(*chp.ConflictError)))
	// Output:
	// <nil> 70 30
	// true
}

// Many conditional updates are on their way at once.
func ExampleClient_StartIf() {
	ctx, c, stop := exampleClient()
	defer stop()
	var outcomes []*chp.Outcome
	var b chp.Batch
	for i := range 100 {
		b.Reset()
		key := fmt.Sprint("/jobs/", i%60)
		b.Set(key, []byte("mine"))
		o, err := c.StartIf(ctx, &b, chp.IfAbsent().On(key))
		if err != nil {
			log.Fatal(err)
		}
		outcomes = append(outcomes, o)
	}
	made := 0
	for _, o := range outcomes {
		if _, err := o.Wait(ctx); err == nil {
			made++
		}
	}
	fmt.Println(made)
	// Output: 60
}

// Many updates, each under a condition of its own, in one call.
func ExampleClient_ApplyEach() {
	ctx, c, stop := exampleClient()
	defer stop()
	var b chp.BatchIf
	for _, job := range []string{"/jobs/1", "/jobs/2", "/jobs/1"} {
		b.Set(job, []byte("mine"), chp.IfAbsent())
	}
	var conflict *chp.ConflictError
	if err := c.ApplyEach(ctx, &b); err != nil && !errors.As(err, &conflict) {
		log.Fatal(err)
	}
	for i := range b.Len() {
		_, err := b.Outcome(i)
		fmt.Println(i, err == nil)
	}
	// Output:
	// 0 true
	// 1 true
	// 2 false
}

// Update tries again when somebody else comes first.
func ExampleClient_Update() {
	ctx, c, stop := exampleClient()
	defer stop()
	for range 3 {
		_, err := c.Update(ctx, "/log", func(old []byte) ([]byte, error) {
			return append(append([]byte(nil), old...), 'x'), nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	sum, err := c.Add(ctx, "/visits", 2)
	v, _ := c.Get("/log")
	fmt.Println(string(v), sum, err)
	// Output: xxx 2 <nil>
}
