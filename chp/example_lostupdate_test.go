package chp_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"clustermap/chp"
)

// Two clients change the same value. Without a condition the first change is lost, with one the
// second client is told, and Update makes both.
func Example_lostUpdate() {
	server, stop := serveExample()
	defer stop()
	ctx := context.Background()
	connect := func() *chp.Client {
		c, err := chp.NewClient(chp.ClientOptions{Servers: []string{server}})
		if err != nil {
			log.Fatal(err)
		}
		return c
	}
	alice, bob := connect(), connect()
	defer alice.Close()
	defer bob.Close()
	begin := func() {
		_, err := alice.SetSync(ctx, "/flag", []byte("on for"))
		if err == nil {
			_, err = bob.SetSync(ctx, "/here", []byte("bob")) // then he has what was set before
		}
		if err != nil {
			log.Fatal(err)
		}
	}

	begin()
	func() {
		alices, _ := alice.Get("/flag") // "on for"
		bobs, _ := bob.Get("/flag")     // the same
		_, err := alice.SetSync(ctx, "/flag", append(alices, " alice"...))
		if err == nil {
			_, err = bob.SetSync(ctx, "/flag", append(bobs, " bob"...))
		}
		value, _ := bob.Get("/flag")
		fmt.Println(string(value), err) // on for bob <nil>
	}()

	begin()
	func() {
		a, _ := alice.Lookup("/flag")
		b, _ := bob.Lookup("/flag")
		_, err := alice.SetIf(ctx, "/flag", append(a.Value, " alice"...), chp.IfSequence(a.Sequence))
		if err == nil {
			_, err = bob.SetIf(ctx, "/flag", append(b.Value, " bob"...), chp.IfSequence(b.Sequence))
		}
		conflict, ok := errors.AsType[*chp.ConflictError](err)
		fmt.Println(ok, conflict.Key) // true /flag
	}()

	begin()
	change := func(c *chp.Client, user string) error {
		_, err := c.Update(ctx, "/flag", func(old []byte) ([]byte, error) {
			return append(old, " "+user...), nil
		})
		return err
	}
	err := errors.Join(change(alice, "alice"), change(bob, "bob"))
	value, _ := bob.Get("/flag")
	fmt.Println(string(value), err)

	// Output:
	// on for bob <nil>
	// true /flag
	// on for alice bob <nil>
}
