// Package perf implements the commands in bench/cmd. They are named after libzmq's
// performance tools, take the same arguments and print the same lines, so that either end
// of a measurement can be libzmq's.
package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"time"

	"clustermap/sockets"
)

// Tool is a performance tool. Its function gets the arguments without the program's name.
type Tool struct {
	name  string
	usage string // of the arguments
	least int    // how many arguments there are
	most  int
	run   func(ctx context.Context, a arguments, out io.Writer) error
}

// arguments are those of all the tools.
type arguments struct {
	endpoint string
	size     int // of a message, in bytes
	count    int // of messages, or of round trips
	curve    bool
}

// errUsage is the error of arguments that the usage does not allow.
var errUsage = errors.New("usage")

// exec runs the tool and returns the exit code, like libzmq's: 1 after wrong
// arguments, 255 after another error. Both go to out, which is where they are
// looked for.
func (t *Tool) exec(ctx context.Context, args []string, out io.Writer) int {
	a, err := t.parse(args)
	if err != nil {
		fmt.Fprintf(out, "usage: %s %s\n", t.name, t.usage)
		return 1
	}
	if err := t.run(ctx, a, out); err != nil {
		fmt.Fprintf(out, "error: %v\n", err)
		return 255
	}
	return 0
}

// Main is the main function of the tool's command.
func (t *Tool) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := t.exec(ctx, os.Args[1:], os.Stdout)
	stop()
	os.Exit(code)
}

// parse reads the arguments: an endpoint if the tool has one, the size, the
// count, and perhaps whether to use CURVE.
func (t *Tool) parse(args []string) (a arguments, err error) {
	if len(args) < t.least || len(args) > t.most {
		return a, errUsage
	}
	number := func(s string) int {
		n, e := strconv.Atoi(s)
		if e != nil || n < 0 {
			err = errUsage
		}
		return n
	}
	if t.least == 3 {
		a.endpoint, args = args[0], args[1:]
	}
	a.size, a.count = number(args[0]), number(args[1])
	if len(args) > 2 {
		a.curve = number(args[2]) != 0
	}
	if a.count < 1 {
		err = errUsage
	}
	return a, err
}

// boundKey is the context's key for a function that is told where the tool is
// bound: tests let the system choose the port.
type boundKey struct{}

func tellBound(ctx context.Context, endpoint string) {
	if tell, ok := ctx.Value(boundKey{}).(func(string)); ok {
		tell(endpoint)
	}
}

// errSize is the error of a message that the other side sent with another size
// than this one was told.
var errSize = errors.New("message of incorrect size received")

// checkBatch counts the messages of a batch, up to most of them, and checks that
// each is one frame of the size.
func checkBatch(b *sockets.Batch, size, most int) (int, error) {
	n := min(b.Len(), most)
	for i := range n {
		if body, rest := b.Message(i).Next(); len(body) != size || len(rest) > 0 {
			return 0, errSize
		}
	}
	return n, nil
}

// batchReceiver is a socket that messages are taken from.
type batchReceiver interface {
	RecvBatch(ctx context.Context, b *sockets.Batch) error
}

// receive takes count messages and returns how long it took from the first on.
func receive(ctx context.Context, from batchReceiver, a arguments) (time.Duration, error) {
	var b sockets.Batch
	defer b.Release()
	var start time.Time
	for got := 0; got < a.count; {
		if err := from.RecvBatch(ctx, &b); err != nil {
			return 0, err
		}
		if start.IsZero() {
			start = time.Now()
		}
		n, err := checkBatch(&b, a.size, a.count-got)
		if err != nil {
			return 0, err
		}
		got += n
	}
	return time.Since(start), nil
}

// sender is a socket that messages are sent to.
type sender interface {
	Send(ctx context.Context, frames ...[]byte) error
}

// send sends count messages.
func send(ctx context.Context, to sender, a arguments) error {
	// Made once: a slice for a call through an interface is allocated.
	message := [][]byte{make([]byte, a.size)}
	for range a.count {
		if err := to.Send(ctx, message...); err != nil {
			return err
		}
	}
	return nil
}

// microseconds is how libzmq's tools count time: in whole ones, and never none.
func microseconds(d time.Duration) float64 { return float64(max(d.Microseconds(), 1)) }

func printCount(out io.Writer, a arguments, of string) {
	fmt.Fprintf(out, "message size: %d [B]\n%s count: %d\n", a.size, of, a.count)
}

func printThroughput(out io.Writer, a arguments, elapsed time.Duration) {
	rate := float64(a.count) / microseconds(elapsed) * 1e6
	fmt.Fprintf(out, "mean throughput: %d [msg/s]\nmean throughput: %.3f [Mb/s]\n", int(rate), rate*float64(a.size)*8/1e6)
}
