// Command editors changes feature flags that others change at the same time. No change is lost
// and none is made twice, even if the server is killed in between.
//
//	chp serve --data flags --sync always
//	go run ./examples/editors alice   # and bob in another terminal
//
// Then type lines such as "dark-mode 10", which turns a flag on for 10 percent more of the users.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"

	"clustermap/chp"
)

// Flag is a feature flag.
type Flag struct {
	Percent int
	Changes []string // who has changed it
}

func main() {
	server := flag.String("server", "tcp://127.0.0.1:5556", "`endpoint` of the server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client, err := chp.NewClient(chp.ClientOptions{Servers: []string{*server}, Subtrees: []string{"/flags/"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan() && ctx.Err() == nil; {
		name, more := "", 0
		if _, err := fmt.Sscan(lines.Text(), &name, &more); err != nil {
			log.Print(err)
			continue
		}
		var f Flag
		_, err := client.Update(ctx, "/flags/"+name, func(old []byte) ([]byte, error) {
			f = Flag{} // if somebody else was first, it is called again
			if err := json.Unmarshal(old, &f); old != nil && err != nil {
				return nil, err
			}
			f.Percent += more
			f.Changes = append(f.Changes, flag.Arg(0))
			return json.Marshal(f)
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %d percent\n", name, f.Percent)
	}
}
