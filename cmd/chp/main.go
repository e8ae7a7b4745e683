// Command chp runs and uses a Clustered Hashmap: a server, and the commands
// that read, write, watch, save, restore and measure the map it holds.
//
//	chp serve                 a server on ports 5556, 5557 and 5558
//	chp set /lamp/1 on        sets a key
//	chp get /lamp/1           prints its value
//	chp watch /lamp/          prints what is there, then every change
//
// Every command explains itself with --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run())
}

// run is main with an exit code, so that deferred calls have their turn.
func run() int {
	// With a handler a write to a closed pipe returns EPIPE, for us to end on in
	// good order, where the default would kill the process in the middle of a
	// write. (Ignoring the signal would pass on to the children of bench.)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks; once asked, a second one has its default effect.
	context.AfterFunc(ctx, stop)

	return execute(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
}
