// Command config is a service whose configuration is a key of a map. It reloads it while
// it runs, and keeps the last good one if the new one is not valid.
//
//	go run ./cmd/chp serve                                         # the server
//	go run ./examples/config                                       # in other terminals
//	go run ./cmd/chp set /config/web '{"greeting": "Hi", "workers": 8}'
//
// Stop it with Ctrl-C.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"

	"clustermap/chp"
)

// Config is the configuration. UnmarshalJSON checks it.
type Config struct {
	Greeting string
	Workers  int
}

func (c *Config) UnmarshalJSON(b []byte) error {
	type plain Config // without this method
	next := plain{Workers: 1}
	if err := json.Unmarshal(b, &next); err != nil {
		return err
	}
	if next.Workers < 1 || next.Workers > 100 {
		return errors.New("workers must be 1 to 100")
	}
	*c = Config(next)
	return nil
}

func main() {
	server := flag.String("server", "tcp://127.0.0.1:5556", "`endpoint` of the server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client, err := chp.NewClient(chp.ClientOptions{
		Servers:     []string{*server},
		Subtrees:    []string{"/config/web"},
		KeepOnEmpty: true, // a server that has lost its map does not take the configuration away
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	config, err := chp.NewView(client, "/config/web", chp.ViewOptions[Config]{
		OnChange: func(c chp.ViewChange[Config]) { fmt.Printf("configuration %+v\n", c.New) },
		OnError:  func(err *chp.DecodeError) { fmt.Println("ignored:", err.Err) },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer config.Close()
	if err := config.WaitSynced(ctx); err != nil {
		log.Fatal(err)
	}
	c, _ := config.Get("/config/web") // no lock: call it for each request
	fmt.Println("ready:", c.Greeting)
	<-ctx.Done()
}
