package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/command"
	"clustermap/patterns/majordomo"
	"clustermap/sockets"

	"github.com/spf13/cobra"
)

// maxInput is the maximum size of a body read from standard input in bytes.
const maxInput = 256 << 20

// readBody returns the body for an argument: the argument itself, or standard input if it
// is "-".
func readBody(ctx context.Context, cmd *cobra.Command, arg string) ([]byte, error) {
	if arg != "-" {
		return []byte(arg), nil
	}
	body, err := io.ReadAll(io.LimitReader(command.Interruptible(ctx, cmd.InOrStdin()), maxInput+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read the body: %w", err)
	case len(body) > maxInput:
		return nil, command.Fail(command.ExitRefused, "the body has more than %d bytes", maxInput)
	}
	return body, nil
}

// newClient creates a client.
func (a *atBroker) newClient() (*majordomo.Client, error) {
	version, err := a.version()
	if err != nil {
		return nil, err
	}
	// Only --timeout limits the wait.
	o := majordomo.ClientOptions{Broker: a.broker, Version: version, Timeout: -1}
	if o.Socket.Security, err = a.keys.Security(); err != nil {
		return nil, err
	}
	client, err := majordomo.NewClient(o)
	if err != nil {
		return nil, a.brokerError(err)
	}
	return client, nil
}

// reason formats err, the error of a connection, with a leading colon. It returns "" for
// nil.
func reason(err error) string {
	if peer, ok := errors.AsType[*sockets.PeerError](err); ok {
		err = peer.Err
	}
	if err == nil {
		return ""
	}
	return ": " + command.ErrorText(err, "; ")
}

// requestError adds an exit code to an error of a request.
func (a *atBroker) requestError(err error, timeout time.Duration) error {
	var refused *majordomo.Error
	switch {
	case errors.Is(err, majordomo.ErrExpired):
		return command.Fail(command.ExitNoAnswer, "no worker was free for the request within the broker's time limit")
	case errors.As(err, &refused):
		return command.Fail(command.ExitRefused, "%d: %s", refused.Code, refused.Text)
	case errors.Is(err, majordomo.ErrNoReply):
		return command.Fail(command.ExitNoAnswer, "no reply through %s: the connection was lost each time", a.broker)
	case timedOut(err):
		why := ""
		if none := (*majordomo.NoBrokerError)(nil); errors.As(err, &none) {
			why = reason(none.Why)
		}
		return command.Fail(command.ExitNoAnswer, "no reply through %s within %v%s", a.broker, timeout, why)
	case errors.Is(err, majordomo.ErrService):
		return a.brokerError(err)
	}
	return err
}

// timedOut reports whether an error means that a reply did not arrive in time.
func timedOut(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// unservedTimeout limits the question of unserved: a broker that is there answers at once.
const unservedTimeout = 5 * time.Second

// unserved reports whether the broker says that a service has no worker. It returns false
// if the broker does not answer.
func unserved(ctx context.Context, client *majordomo.Client, service string) bool {
	ctx, cancel := context.WithTimeout(ctx, unservedTimeout)
	defer cancel()
	available, err := client.Available(ctx, service)
	return err == nil && !available
}

func newRequest() *cobra.Command {
	var (
		at              atBroker
		timeout         time.Duration
		asJSON, raw     bool
		count, pipeline = command.Number(1), command.Number(1)
	)
	cmd := &cobra.Command{
		Use:   "request SERVICE [BODY|-]",
		Short: "Send a request to a service and print the reply (Majordomo)",
		Long: `Sends BODY, or standard input if it is -, to SERVICE through a broker, and prints the
reply: each frame and a newline. A request for a service without a worker waits.

With --count it sends the request that many times, and with --pipeline that many at the
same time. It then prints no replies, but the rate and the response times.

Exit codes: 0 success, 1 refused by the worker or the broker, 3 no reply within
--timeout. If the broker then says that the service has no worker, so does the error.`,
		Example: `  zdev request echo hello
  zdev request mmi.service echo
  zdev request thumbnail - --raw < photo.jpg > small.jpg
  zdev request echo hello --count 100000 --pipeline 100`,
		Args:              command.Args(1, 2),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := cmd.Flags()
	at.register(cmd, flags)
	flags.DurationVar(&timeout, "timeout", 5*time.Second, "how long to wait for each reply")
	flags.BoolVar(&asJSON, "json", false, "print a JSON object: the frames, or the measurements")
	flags.BoolVar(&raw, "raw", false, "print only the bytes of the reply")
	command.Exclude(cmd, "json", "raw")
	flags.Var(&count, "count", "number of requests to send")
	flags.Var(&pipeline, "pipeline", "maximum number of requests in progress")
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		if timeout <= 0 || count <= 0 || pipeline <= 0 {
			return command.Fail(command.ExitUsage, "--timeout, --count and --pipeline must be above 0")
		}
		body, err := readBody(ctx, cmd, append(args, "")[1])
		if err != nil {
			return err
		}
		client, err := at.newClient()
		if err != nil {
			return err
		}
		defer client.Close()
		explain := func(err error) error {
			none := (*majordomo.NoBrokerError)(nil)
			if timedOut(err) && !errors.As(err, &none) && unserved(ctx, client, args[0]) {
				return command.Fail(command.ExitNoAnswer, "no reply through %s within %v: the service %q has no worker", at.broker, timeout, args[0])
			}
			return at.requestError(err, timeout)
		}
		ask := func() ([][]byte, error) {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			return client.Request(ctx, args[0], body)
		}
		if cmd.Flags().Changed("count") || cmd.Flags().Changed("pipeline") {
			return measure(cmd.OutOrStdout(), int(count), int(pipeline), asJSON, ask, explain)
		}
		reply, err := ask()
		if err != nil {
			return explain(err)
		}
		return writeReply(cmd, reply, asJSON, raw)
	})
	return cmd
}

// writeReply prints a reply.
func writeReply(cmd *cobra.Command, reply [][]byte, asJSON, raw bool) error {
	_, err := command.Values(cmd, raw).Write(appendReply(nil, reply, asJSON, raw))
	return err
}

// appendReply appends a reply in the form to print.
func appendReply(dst []byte, reply [][]byte, asJSON, raw bool) []byte {
	if asJSON {
		return append(appendJSONFrames(append(dst, '{'), reply), '}', '\n')
	}
	for _, frame := range reply {
		dst = append(dst, frame...)
		if !raw {
			dst = append(dst, '\n')
		}
	}
	return dst
}

// measure sends count requests, up to pipeline at the same time, and prints the rate and
// the response times.
func measure(out io.Writer, count, pipeline int, asJSON bool, ask func() ([][]byte, error), explain func(error) error) error {
	var (
		next   atomic.Int64
		failed atomic.Pointer[error]
		all    sync.WaitGroup
	)
	times := make([]time.Duration, count)
	began := time.Now()
	for range min(pipeline, count) {
		all.Go(func() {
			for failed.Load() == nil {
				i := next.Add(1) - 1
				if i >= int64(count) {
					return
				}
				sent := time.Now()
				if _, err := ask(); err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				times[i] = time.Since(sent)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	if err := failed.Load(); err != nil {
		return explain(*err)
	}
	slices.Sort(times)
	at := func(share float64) time.Duration { return times[int(share*float64(count-1))] }
	format := "%d requests in %.3f s: %.0f per second; half within %.3f ms, 99 %% within %.3f ms, all within %.3f ms\n"
	if asJSON {
		format = `{"requests":%d,"seconds":%.6f,"per_second":%.1f,"p50_ms":%.3f,"p99_ms":%.3f,"max_ms":%.3f}` + "\n"
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	_, err := fmt.Fprintf(out, format, count, took.Seconds(), float64(count)/took.Seconds(), ms(at(0.5)), ms(at(0.99)), ms(at(1)))
	return err
}
