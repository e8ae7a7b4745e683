package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"clustermap/internal/command"
	"clustermap/patterns/majordomo"
	"clustermap/patterns/titanic"

	"github.com/spf13/cobra"
)

func newTitanic() *cobra.Command {
	var (
		at          atBroker
		beat        beats
		o           titanic.Options
		concurrency = command.Number(titanic.DefaultConcurrency)
		perService  = command.Number(titanic.DefaultPerService)
		maxRequests = command.Number(titanic.DefaultMaxRequests)
		maxRequest  = command.Bytes(titanic.DefaultMaxRequestBytes)
		maxReply    = command.Bytes(titanic.DefaultMaxReplyBytes)
		maxBytes    = command.Bytes(titanic.DefaultMaxBytes)
	)
	cmd := &cobra.Command{
		Use:   "titanic --data DIR",
		Short: "Keep requests on disk until a worker has answered them (Titanic)",
		Long: `Registers with a broker for the services titanic.request, titanic.reply and
titanic.close (RFC 9), and keeps the requests that it is given in the directory DIR, which
it creates if there is none. It has each done by the workers of its service when there
are some, and keeps the reply until the client closes the request.

A request that was acknowledged survives a crash at any instant. It is done at least
once: again if this command ends between a worker's reply and its arrival on the disk, and
if the worker takes longer than --attempt-timeout.

A disk that is full is an answer to clients (500). Any other failure of the disk ends the
command with exit code 1; started again, it goes on with what is there. One command at
a time uses a directory. While there is no broker it tries to connect, and says so on
standard error.`,
		Example: `  zdev titanic --data /var/lib/titanic
  zdev titanic --data . --broker tcp://10.0.0.7:5555 --per-service 4 --attempt-timeout 1h`,
		Args:              command.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Dir, "data", "", "`directory` of the requests")
	if err := cmd.MarkFlagDirname("data"); err != nil {
		panic(err) // there is such a flag
	}
	at.registerConnection(flags)
	beat.register(flags)
	flags.Var(&concurrency, "concurrency", "requests to each of the three services that are handled at once")
	flags.Var(&perService, "per-service", "requests of one service that are done at once; as many as it has workers")
	flags.DurationVar(&o.AttemptTimeout, "attempt-timeout", titanic.DefaultAttemptTimeout, "how long to wait for a worker's reply before the request is tried again")
	flags.DurationVar(&o.RetryMax, "retry-max", titanic.DefaultRetryMax, "longest wait before a request is tried again, and before the broker is asked again for workers")
	flags.DurationVar(&o.RequestTTL, "request-ttl", titanic.DefaultRequestTTL, "how long a request is kept that no worker does; negative: for ever")
	flags.DurationVar(&o.ReplyTTL, "reply-ttl", titanic.DefaultReplyTTL, "how long a reply is kept that no client closes; negative: for ever")
	flags.Var(&maxRequest, "max-request", "bytes of a request")
	flags.Var(&maxReply, "max-reply", "bytes of a reply")
	flags.Var(&maxRequests, "max-requests", "requests and replies that are kept")
	flags.Var(&maxBytes, "max-bytes", "bytes of all of them")
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) (err error) {
		if o.Dir == "" {
			return command.Fail(command.ExitUsage, "say with --data where to keep the requests")
		}
		if err := beat.check(); err != nil {
			return err
		}
		for _, n := range []int{int(concurrency), int(perService), int(maxRequests), int(maxRequest), int(maxReply), int(maxBytes)} {
			if n <= 0 {
				return command.Fail(command.ExitUsage, "--concurrency, --per-service and the limits must be above 0")
			}
		}
		if concurrency > majordomo.MaxConcurrency {
			return command.Fail(command.ExitUsage, "--concurrency is at most %d", majordomo.MaxConcurrency)
		}
		if maxRequest > titanic.MaxMessageBytes || maxReply > titanic.MaxMessageBytes {
			return command.Fail(command.ExitUsage, "--max-request and --max-reply are at most 512MiB")
		}
		if o.AttemptTimeout <= 0 || o.RetryMax <= 0 || o.RequestTTL == 0 || o.ReplyTTL == 0 {
			return command.Fail(command.ExitUsage, "--attempt-timeout and --retry-max must be above 0, --request-ttl and --reply-ttl not 0")
		}
		o.Broker, o.Heartbeat, o.Liveness = at.broker, beat.heartbeat, int(beat.liveness)
		o.Concurrency, o.PerService, o.MaxRequests = int(concurrency), int(perService), int(maxRequests)
		o.MaxRequestBytes, o.MaxReplyBytes, o.MaxBytes = int(maxRequest), int(maxReply), int64(maxBytes)
		if o.Socket.Security, err = at.keys.Security(); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		o.Socket.Monitor = at.news(ctx, cmd)
		server, err := titanic.New(o)
		if err != nil {
			return titanicError(&at, err)
		}
		defer server.Close()
		if n := server.Status().Waiting; n > 0 {
			command.Say(cmd.ErrOrStderr(), fmt.Sprintf("zdev: %d requests wait in %s\n", n, o.Dir))
		}
		go func() {
			select {
			case <-server.Failed():
				cancel()
			case <-ctx.Done():
			}
		}()
		if server.WaitRegistered(ctx) == nil {
			command.Ready(cmd, o.Socket.Security, "titanic in "+o.Dir+" at "+at.broker)
		}
		<-ctx.Done()
		return server.Close()
	})
	return cmd
}

// titanicError gives an error of titanic.New an exit code.
func titanicError(at *atBroker, err error) error {
	var option *titanic.OptionError
	var store *titanic.StoreError
	switch {
	case errors.As(err, &option):
		return command.Fail(command.ExitUsage, "%w", err)
	case errors.As(err, &store):
		return command.Fail(command.ExitRefused, "--data %s: %w", store.Dir, store.Err)
	}
	return at.brokerError(err)
}

// fromTitanic are the flags of whoever asks a Titanic server for something.
type fromTitanic struct {
	atBroker
	timeout time.Duration
}

func (f *fromTitanic) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.registerConnection(flags)
	flags.DurationVar(&f.timeout, "timeout", 5*time.Second, "how long to wait for the answer")
}

// runs makes a body of what a command does with a client.
func (f *fromTitanic) runs(body func(ctx context.Context, cmd *cobra.Command, c *titanic.Client, args []string) error) command.Body {
	return func(ctx context.Context, cmd *cobra.Command, args []string) error {
		if f.timeout <= 0 {
			return command.Fail(command.ExitUsage, "--timeout must be above 0")
		}
		o := titanic.ClientOptions{Broker: f.broker}
		var err error
		if o.Socket.Security, err = f.keys.Security(); err != nil {
			return err
		}
		o.Socket.Monitor = f.watch
		client, err := titanic.NewClient(o)
		if err != nil {
			return f.brokerError(err)
		}
		defer client.Close()
		return f.explain(body(ctx, cmd, client, args))
	}
}

// explain gives an error of a client an exit code.
func (f *fromTitanic) explain(err error) error {
	var refused *titanic.RefusedError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded): // before what Wait was told last
		return f.requestError(err, f.timeout)
	case errors.Is(err, titanic.ErrPending):
		return command.Fail(command.ExitRefused, "pending: there is no reply yet")
	case errors.Is(err, titanic.ErrUnknown):
		return command.Fail(command.ExitRefused, "unknown: nothing is stored under this UUID")
	case errors.Is(err, titanic.ErrInvalid):
		return command.Fail(command.ExitRefused, "the server does not take such a request: it is too large, or the service's name cannot be printed")
	case errors.Is(err, titanic.ErrServer):
		return command.Fail(command.ExitRefused, "the server cannot do it now; try again later")
	case errors.As(err, &refused):
		return command.Fail(command.ExitRefused, "refused: %d: %s", refused.Code, refused.Text)
	}
	return f.requestError(err, f.timeout)
}

func newSubmit() *cobra.Command {
	var f fromTitanic
	cmd := &cobra.Command{
		Use:   "submit SERVICE [BODY|-]",
		Short: "Have a request kept until a worker has answered it, and print its UUID (Titanic)",
		Long: `Gives a request for SERVICE, with BODY or with - what is on standard input, to a Titanic
server, and prints the UUID when it is on the server's disk. The service need not
be there. Fetch the reply with zdev fetch.

Without an answer (exit code 3) the request may be stored all the same.`,
		Example: `  zdev submit echo hello
  id=$(zdev submit thumbnail - < photo.jpg)`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.register(cmd)
	cmd.RunE = command.Runs(f.runs(func(ctx context.Context, cmd *cobra.Command, c *titanic.Client, args []string) error {
		if strings.HasPrefix(args[0], majordomo.ReservedPrefix) {
			return errReserved
		}
		body, err := readBody(ctx, cmd, append(args, "")[1])
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, f.timeout)
		defer cancel()
		id, err := c.Submit(ctx, args[0], body)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), id)
		return err
	}))
	return cmd
}

func newFetch() *cobra.Command {
	var (
		f                 fromTitanic
		wait, asJSON, raw bool
	)
	cmd := &cobra.Command{
		Use:   "fetch UUID",
		Short: "Print the reply to a request that was submitted (Titanic)",
		Long: `Prints the reply to the request with this UUID: each frame and a newline. The server
keeps it until zdev discard.

Exit codes: 0 there is a reply; 1 there is none: pending, unknown, or refused by the
worker, as standard error says; 3 no answer within --timeout, or with --wait no reply.`,
		Example: `  zdev fetch 0f8fad5bd9cb469fa16570867728950e
  zdev fetch $id --wait --timeout 1h --raw > small.jpg`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&wait, "wait", false, "wait for the reply, up to --timeout")
	flags.BoolVar(&asJSON, "json", false, "print the frames as an object")
	flags.BoolVar(&raw, "raw", false, "print the bytes of the reply and nothing else")
	cmd.RunE = command.Runs(f.runs(func(ctx context.Context, cmd *cobra.Command, c *titanic.Client, args []string) error {
		if asJSON && raw {
			return command.Fail(command.ExitUsage, "give either --json or --raw")
		}
		id, err := parseUUID(args[0])
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, f.timeout)
		defer cancel()
		fetch := c.Fetch
		if wait {
			fetch = c.Wait
		}
		reply, err := fetch(ctx, id)
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(appendReply(nil, reply, asJSON, raw))
		return err
	}))
	return cmd
}

func newDiscard() *cobra.Command {
	var f fromTitanic
	cmd := &cobra.Command{
		Use:   "discard UUID",
		Short: "Delete a request that was submitted, and its reply (Titanic)",
		Long: `Has the server delete the request with this UUID and its reply. If no worker has it yet,
it is not done any more. It is no error if there is nothing to delete.`,
		Example:           `  zdev discard 0f8fad5bd9cb469fa16570867728950e`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.register(cmd)
	cmd.RunE = command.Runs(f.runs(func(ctx context.Context, _ *cobra.Command, c *titanic.Client, args []string) error {
		id, err := parseUUID(args[0])
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, f.timeout)
		defer cancel()
		return c.Discard(ctx, id)
	}))
	return cmd
}

func parseUUID(text string) (titanic.UUID, error) {
	id, err := titanic.ParseUUID(text)
	if err != nil {
		return id, command.Fail(command.ExitUsage, "%q: a UUID is exactly 32 hexadecimal characters", text)
	}
	return id, nil
}
