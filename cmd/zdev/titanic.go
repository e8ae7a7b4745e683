package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"clustermap/internal/command"
	"clustermap/patterns/majordomo"
	"clustermap/patterns/titanic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
)

func newTitanic() *cobra.Command {
	var (
		at   atBroker
		beat beats
		o    = titanic.Options{
			Concurrency: titanic.DefaultConcurrency, PerService: titanic.DefaultPerService, MaxRequests: titanic.DefaultMaxRequests,
			MaxRequestBytes: titanic.DefaultMaxRequestBytes, MaxReplyBytes: titanic.DefaultMaxReplyBytes,
		}
		maxBytes = command.Bytes(titanic.DefaultMaxBytes)
		http     httpFlags
	)
	cmd := &cobra.Command{
		Use:   "titanic --data DIR",
		Short: "Keep requests on disk until they are answered (Titanic)",
		Long: `Registers with a broker for the services titanic.request, titanic.reply and
titanic.close (RFC 9), and stores requests in the directory DIR, which it creates if it
does not exist. It sends each request to a worker of its service when there is one, and
keeps the reply until the client closes the request.

An acknowledged request survives a crash at any time. It is executed at least once: again
if this command ends before a worker's reply is on disk, or if the worker takes longer
than --attempt-timeout.

If the disk is full, clients get the status 500. Any other disk error ends the command
with exit code 1; after a restart it continues with the stored requests. Only one process
can use a directory. While the broker cannot be reached, the command tries to connect, and
reports that on standard error.`,
		Example: `  zdev titanic --data /var/lib/titanic
  zdev titanic --data . --broker tcp://10.0.0.7:5555 --per-service 4 \
    --attempt-timeout 1h`,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Dir, "data", "", "`directory` of the requests")
	if err := cmd.MarkFlagDirname("data"); err != nil {
		panic(err) // the flag does not exist
	}
	at.registerConnection(flags)
	beat.register(flags)
	flags.Var((*command.Number)(&o.Concurrency), "concurrency", "maximum number of requests handled at the same time by each of the three services")
	flags.Var((*command.Number)(&o.PerService), "per-service", "requests of one service executed at the same time; as many as it has workers")
	flags.DurationVar(&o.AttemptTimeout, "attempt-timeout", titanic.DefaultAttemptTimeout, "how long to wait for a worker's reply before the request is sent again")
	flags.DurationVar(&o.RetryMax, "retry-max", titanic.DefaultRetryMax, "maximum wait before a request is sent again, and before the broker is asked again for workers")
	flags.DurationVar(&o.RequestTTL, "request-ttl", titanic.DefaultRequestTTL, "how long to keep a request that no worker executes; negative means forever")
	flags.DurationVar(&o.ReplyTTL, "reply-ttl", titanic.DefaultReplyTTL, "how long to keep a reply that no client closes; negative means forever")
	flags.Var((*command.Bytes)(&o.MaxRequestBytes), "max-request", "maximum size of a request")
	flags.Var((*command.Bytes)(&o.MaxReplyBytes), "max-reply", "maximum size of a reply")
	flags.Var((*command.Number)(&o.MaxRequests), "max-requests", "maximum number of stored requests and replies")
	flags.Var(&maxBytes, "max-bytes", "maximum total size of stored requests and replies")
	http.register(flags)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) (err error) {
		if o.Dir == "" {
			return command.Fail(command.ExitUsage, "give the directory of the requests with --data")
		}
		if err := beat.check(); err != nil {
			return err
		}
		if min(o.Concurrency, o.PerService, o.MaxRequests, o.MaxRequestBytes, o.MaxReplyBytes, int(maxBytes)) <= 0 {
			return command.Fail(command.ExitUsage, "--concurrency, --per-service and the limits must be above 0")
		}
		if o.Concurrency > majordomo.MaxConcurrency {
			return command.Fail(command.ExitUsage, "--concurrency is at most %d", majordomo.MaxConcurrency)
		}
		if o.MaxRequestBytes > titanic.MaxMessageBytes || o.MaxReplyBytes > titanic.MaxMessageBytes {
			return command.Fail(command.ExitUsage, "--max-request and --max-reply are at most 512MiB")
		}
		if o.AttemptTimeout <= 0 || o.RetryMax <= 0 || o.RequestTTL == 0 || o.ReplyTTL == 0 {
			return command.Fail(command.ExitUsage, "--attempt-timeout and --retry-max must be above 0, and --request-ttl and --reply-ttl must not be 0")
		}
		o.Broker, o.Heartbeat, o.Liveness = at.broker, beat.heartbeat, int(beat.liveness)
		o.MaxBytes = int64(maxBytes)
		if o.Socket.Security, err = at.keys.Security(); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		o.Socket.Monitor = at.news(ctx, cmd)
		o.OnDismiss = at.dismissed(ctx, cmd, "titanic.*")
		server, err := titanic.New(o)
		if err != nil {
			return titanicError(&at, err)
		}
		defer server.Close()
		if n := server.Status().Waiting; n > 0 {
			command.Say(cmd.ErrOrStderr(), fmt.Sprintf("zdev: %s waiting in %s\n", command.Count(n, "request"), o.Dir))
		}
		go func() {
			select {
			case <-server.Failed():
				cancel()
			case <-ctx.Done():
			}
		}()
		var registered atomic.Bool
		side, err := http.openUntil(ctx, cmd, registered.Load, titanicMetrics(server)...)
		if err != nil {
			return err
		}
		defer side.Close()
		if server.WaitRegistered(ctx) == nil {
			registered.Store(true)
			command.Ready(cmd, o.Socket.Security, "titanic in "+o.Dir+" at "+at.broker)
		}
		<-ctx.Done()
		return server.Close()
	})
	return cmd
}

// titanicMetrics returns the metrics of a server for --http.
func titanicMetrics(s *titanic.Server) []prometheus.Collector {
	return []prometheus.Collector{
		counted("zdev_titanic_stored_total", "Requests stored.", func() uint64 { return s.Status().Stored }),
		counted("zdev_titanic_executed_total", "Replies stored, errors included.", func() uint64 { return s.Status().Executed }),
		counted("zdev_titanic_refused_total", "Requests to which the worker replied with an error.", func() uint64 { return s.Status().Refused }),
		counted("zdev_titanic_attempts_total", "Requests sent to the broker.", func() uint64 { return s.Status().Attempts }),
		counted("zdev_titanic_retries_total", "Requests sent to the broker again.", func() uint64 { return s.Status().Retries }),
		counted("zdev_titanic_expired_total", "Requests and replies that expired.", func() uint64 { return s.Status().Expired }),
		counted("zdev_titanic_invalid_total", "Requests of clients that were invalid.", func() uint64 { return s.Status().Invalid }),
		counted("zdev_titanic_full_total", "Requests of clients for which there was no room.", func() uint64 { return s.Status().Full }),
		counted("zdev_titanic_flushes_total", "Flushes of the file.", func() uint64 { return s.Status().Flushes }),
		measured("zdev_titanic_waiting", "Stored requests without a reply.", func() int { return s.Status().Waiting }),
		measured("zdev_titanic_running", "Requests at the broker.", func() int { return s.Status().Running }),
		measured("zdev_titanic_replies", "Stored replies.", func() int { return s.Status().Replies }),
		measured("zdev_titanic_stored_bytes", "Bytes of stored requests and replies.", func() int { return int(s.Status().Bytes) }),
	}
}

// titanicError adds an exit code to an error of titanic.New.
func titanicError(at *atBroker, err error) error {
	var option *titanic.OptionError
	var store *titanic.StoreError
	switch {
	case errors.As(err, &option):
		return command.Fail(command.ExitUsage, "%w", err)
	case errors.As(err, &store):
		return command.Fail(command.ExitRefused, "--data %s: %s", store.Dir, strings.TrimPrefix(store.Err.Error(), "titanic: "))
	}
	return at.brokerError(err)
}

// fromTitanic holds the flags of a client of a Titanic server.
type fromTitanic struct {
	atBroker
	timeout time.Duration
}

func (f *fromTitanic) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.registerConnection(flags)
	flags.DurationVar(&f.timeout, "timeout", 5*time.Second, "how long to wait for the answer")
}

// runs returns a Body that creates a client and passes it to body.
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
		client, err := titanic.NewClient(o)
		if err != nil {
			return f.brokerError(err)
		}
		defer client.Close()
		return f.explain(body(ctx, cmd, client, args))
	}
}

// explain adds an exit code to an error of a client.
func (f *fromTitanic) explain(err error) error {
	var refused *titanic.RefusedError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded): // first: Wait also returns the last answer
		return f.requestError(err, f.timeout)
	case errors.Is(err, titanic.ErrPending):
		return command.Fail(command.ExitRefused, "pending: there is no reply yet")
	case errors.Is(err, titanic.ErrUnknown):
		return command.Fail(command.ExitRefused, "unknown: nothing is stored under this UUID")
	case errors.Is(err, titanic.ErrInvalid):
		return command.Fail(command.ExitRefused, "the server does not accept the request: it is too large, or the service's name has unprintable characters")
	case errors.Is(err, titanic.ErrServer):
		return command.Fail(command.ExitRefused, "the server cannot do that now; try again later")
	case errors.As(err, &refused):
		return command.Fail(command.ExitRefused, "refused: %d: %s", refused.Code, refused.Text)
	}
	return f.requestError(err, f.timeout)
}

func newSubmit() *cobra.Command {
	var f fromTitanic
	cmd := &cobra.Command{
		Use:   "submit SERVICE [BODY|-]",
		Short: "Store a request until it is answered, and print its UUID",
		Long: `Sends a request for SERVICE to a Titanic server, with BODY, or standard input if it is -,
and prints the UUID when the request is on the server's disk. The service need not be
available. Fetch the reply with zdev fetch.

If there is no answer (exit code 3), the request may or may not be stored.`,
		Example: `  zdev submit echo hello
  id=$(zdev submit thumbnail - < photo.jpg)`,
		Args:              command.Args(1, 2),
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
		Short: "Print the reply to a submitted request (Titanic)",
		Long: `Prints the reply to the request with this UUID: each frame and a newline. The server
keeps it until zdev discard.

Exit codes: 0 success; 1 pending, unknown, or refused by the worker (standard error
reports which); 3 no answer within --timeout, or with --wait no reply.`,
		Example: `  zdev fetch 0f8fad5bd9cb469fa16570867728950e
  zdev fetch $id --wait --timeout 1h --raw > small.jpg`,
		Args:              command.Args(1, 1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&wait, "wait", false, "wait for the reply, up to --timeout")
	flags.BoolVar(&asJSON, "json", false, "print the frames as an object")
	flags.BoolVar(&raw, "raw", false, "print only the bytes of the reply")
	command.Exclude(cmd, "json", "raw")
	cmd.RunE = command.Runs(f.runs(func(ctx context.Context, cmd *cobra.Command, c *titanic.Client, args []string) error {
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
		return writeReply(cmd, reply, asJSON, raw)
	}))
	return cmd
}

func newDiscard() *cobra.Command {
	var f fromTitanic
	cmd := &cobra.Command{
		Use:   "discard UUID",
		Short: "Delete a submitted request and its reply (Titanic)",
		Long: `Deletes the request with this UUID, and its reply, from the server. If no worker has the
request yet, it is not executed. It is not an error if the request does not exist.`,
		Example:           `  zdev discard 0f8fad5bd9cb469fa16570867728950e`,
		Args:              command.Args(1, 1),
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
