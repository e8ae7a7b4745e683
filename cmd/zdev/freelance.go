package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"clustermap/internal/command"
	"clustermap/internal/jsonline"
	"clustermap/patterns/freelance"
	"clustermap/sockets"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
)

func newFreelanceServe() *cobra.Command {
	var (
		o        = freelance.ServerOptions{Concurrency: freelance.DefaultConcurrency, MaxWaiting: freelance.DefaultMaxWaiting}
		echo     bool
		drain    time.Duration
		maxReply = command.Bytes(defaultMaxReply)
		curve    = command.ServerKeys{Keys: curve}
		http     httpFlags
	)
	cmd := &cobra.Command{
		Use:   "freelance-serve --bind EP (--echo | -- COMMAND [ARG...])",
		Short: "Answer requests with a command (Freelance, RFC 10)",
		Long: `Answers requests of Freelance clients: COMMAND runs once for each request. It reads the
concatenated frames of the request from standard input and writes the reply to standard
output. --echo returns requests unchanged. The server answers pings while COMMAND runs.

If the exit status of COMMAND is not 0, zdev freelance-call gets an error with the last
line of its standard error; other clients get no reply.

The server's identity is the endpoint in exactly the form in which clients connect to it:
--bind, or --advertise, which is required for tcp://*:PORT.

After SIGINT, SIGTERM or SIGHUP the server refuses new requests and waits up to --drain for
requests in progress. If the server is killed with SIGKILL, Linux kills COMMAND too, but
not its child processes. On other systems COMMAND continues.`,
		Example: `  zdev freelance-serve --bind tcp://127.0.0.1:5555 --echo
  zdev freelance-serve --bind tcp://127.0.0.1:5555 -- tr a-z A-Z
  zdev freelance-serve --bind tcp://*:5555 --advertise tcp://server1:5555 \
    --concurrency 4 -- ./answer`,
		Args: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			switch {
			case dash < 0 && len(args) > 0, dash > 0:
				return errors.New("the command belongs after --")
			case echo == (dash == 0):
				return errors.New("give either --echo or a command after --")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Bind, "bind", "", "`endpoint` to listen on")
	flags.StringVar(&o.Advertise, "advertise", "", "`endpoint` that clients connect to (default --bind)")
	command.Endpoints(flags, "bind", "advertise")
	flags.BoolVar(&echo, "echo", false, "reply with the request")
	flags.Var((*command.Number)(&o.Concurrency), "concurrency", "maximum number of requests executed at the same time")
	flags.Var((*command.Number)(&o.MaxWaiting), "max-waiting", "maximum number of waiting requests; more are refused")
	flags.DurationVar(&o.MaxWait, "max-wait", freelance.DefaultMaxWait, "maximum time that a request waits")
	flags.BoolVar(&o.SkipDelimiter, "skip-delimiter", false, "remove the empty frame that the guide's Python client sends before the body")
	flags.Var(&maxReply, "max-reply", "maximum size of the command's output")
	flags.DurationVar(&drain, "drain", 5*time.Second, "how long to wait for requests in progress at the end")
	curve.Register(flags)
	http.register(flags)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) (err error) {
		switch {
		case o.Bind == "":
			return command.Fail(command.ExitUsage, "give --bind")
		case o.Concurrency <= 0 || o.MaxWaiting <= 0 || maxReply <= 0 || o.MaxWait <= 0:
			return command.Fail(command.ExitUsage, "--concurrency, --max-waiting, --max-wait and --max-reply must be above 0")
		case drain < 0:
			return command.Fail(command.ExitUsage, "--drain must not be negative")
		}
		if o.Security, err = curve.Security(); err != nil {
			return err
		}
		if o.Handler, err = handler(echo, args, maxReply); err != nil {
			return err
		}
		o.Monitor = monitor(ctx, cmd, "bind")
		server, err := freelance.NewServer(ctx, o)
		if err != nil {
			return serveError(o.Bind, err)
		}
		defer server.Close()
		side, err := http.open(ctx, cmd, freelanceMetrics(server)...)
		if err != nil {
			return err
		}
		defer side.Close()
		endpoints := server.Endpoint()
		if o.Advertise != "" {
			endpoints = server.Bound() + ", advertised as " + endpoints
		}
		command.Ready(cmd, o.Security, endpoints)
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.Background(), drain)
		defer cancel()
		if err := server.Shutdown(end); !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		return nil
	})
	return cmd
}

// freelanceMetrics returns the metrics of a server for --http.
func freelanceMetrics(s *freelance.Server) []prometheus.Collector {
	return []prometheus.Collector{
		counted("zdev_freelance_requests_total", "Requests of clients.", func() uint64 { return s.Stats().Requests }),
		counted("zdev_freelance_replies_total", "Replies queued for their clients.", func() uint64 { return s.Stats().Replies }),
		counted("zdev_freelance_failed_total", "Requests that the command failed for, or whose reply was too large.", func() uint64 { return s.Stats().Failed }),
		counted("zdev_freelance_busy_total", "Requests refused because there was no room, or at the end.", func() uint64 { return s.Stats().Busy }),
		counted("zdev_freelance_expired_total", "Requests refused because they waited too long.", func() uint64 { return s.Stats().Expired }),
		counted("zdev_freelance_dropped_total", "Replies dropped because the client was gone or did not read.", func() uint64 { return s.Stats().Dropped }),
		counted("zdev_freelance_malformed_total", "Messages dropped that are neither requests nor pings.", func() uint64 { return s.Stats().Malformed }),
		measured("zdev_freelance_waiting", "Requests that wait.", func() int { return s.Stats().Waiting }),
		measured("zdev_freelance_active", "Requests that are executed.", func() int { return s.Stats().Active }),
	}
}

// serveError adds an exit code to an error of freelance.NewServer.
func serveError(bind string, err error) error {
	var option *freelance.OptionError
	if errors.As(err, &option) {
		flag := "--bind"
		if option.Field == "Advertise" {
			flag = "--advertise"
		}
		return command.Fail(command.ExitUsage, "%s %s", flag, option.Reason)
	}
	return command.EndpointError("--bind", bind, err)
}

func newFreelanceCall() *cobra.Command {
	var (
		o               freelance.ClientOptions
		asJSON, raw     bool
		count, pipeline = command.Number(1), command.Number(1)
		curve           = command.ClientKeys{Keys: curve}
	)
	cmd := &cobra.Command{
		Use:   "freelance-call BODY|-",
		Short: "Send a request to one of several servers (Freelance)",
		Long: `Sends BODY, or standard input if it is -, to the first server that is reachable, and
prints the reply: each frame and a newline. If that server is silent, the request goes to
the next one within the timeout; a server that answers pings keeps the request, unless
--hedge is given.

With --count it sends the request that many times, and with --pipeline that many at the
same time. It then prints no replies, but the rate and the response times.

Exit codes: 0 success, 1 the server's command failed or all servers are busy, 3 no reply
within --timeout.`,
		Example: `  zdev freelance-call --server tcp://127.0.0.1:5555 hello
  zdev freelance-call --server tcp://server1:5555 --server tcp://server2:5555 \
    --raw - < in > out
  zdev freelance-call --server tcp://127.0.0.1:5555 hello \
    --count 100000 --pipeline 100`,
		Args:              command.Args(1, 1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.Servers, "server", nil, "`endpoint` of a server; repeat it for several, the preferred one first")
	command.Endpoints(flags, "server")
	flags.DurationVar(&o.Timeout, "timeout", 5*time.Second, "how long to wait for the reply")
	flags.DurationVar(&o.Hedge, "hedge", 0, "time after which to ask the next server too; 0 means never")
	flags.BoolVar(&o.RoundRobin, "round-robin", false, "start each of several requests at the next server")
	flags.BoolVar(&asJSON, "json", false, "print a JSON object: the server that replied and the frames, or the measurements")
	flags.BoolVar(&raw, "raw", false, "print only the bytes of the reply")
	command.Exclude(cmd, "json", "raw")
	flags.Var(&count, "count", "number of requests to send")
	flags.Var(&pipeline, "pipeline", "maximum number of requests in progress")
	curve.Register(flags)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) (err error) {
		switch {
		case len(o.Servers) == 0:
			return command.Fail(command.ExitUsage, "give --server")
		case o.Timeout <= 0 || o.Hedge < 0:
			return command.Fail(command.ExitUsage, "--timeout must be positive, and --hedge must not be negative")
		case count <= 0 || pipeline <= 0:
			return command.Fail(command.ExitUsage, "--count and --pipeline must be above 0")
		}
		if o.Security, err = curve.Security(); err != nil {
			return err
		}
		body, err := readBody(ctx, cmd, args[0])
		if err != nil {
			return err
		}
		o.MaxRequests = int(pipeline)
		client, err := freelance.NewClient(o)
		if err != nil {
			return callError(err, o.Timeout)
		}
		defer client.Close()
		if cmd.Flags().Changed("count") || cmd.Flags().Changed("pipeline") {
			ask := func() ([][]byte, error) { return client.Request(ctx, body) }
			return measure(cmd.OutOrStdout(), int(count), int(pipeline), asJSON, ask, func(err error) error { return callError(err, o.Timeout) })
		}
		reply, err := client.Do(ctx, body)
		if err != nil {
			return callError(err, o.Timeout)
		}
		if !asJSON {
			return writeReply(cmd, reply.Body, false, raw)
		}
		out := append(jsonline.AppendField([]byte{'{'}, "server", []byte(reply.Server)), ',')
		_, err = cmd.OutOrStdout().Write(append(appendJSONFrames(out, reply.Body), '}', '\n'))
		return err
	})
	return cmd
}

// callError adds an exit code to an error of a freelance.Client.
func callError(err error, timeout time.Duration) error {
	var none *freelance.NoReplyError
	var failed *freelance.HandlerError
	var endpoint *sockets.EndpointError
	switch {
	case errors.As(err, &endpoint):
		return command.EndpointError("--server", endpoint.Endpoint, endpoint)
	case errors.As(err, &none):
		lines := []error{fmt.Errorf("no reply within %v", timeout)}
		for _, a := range none.Servers {
			lines = append(lines, errors.New("  "+a.String()))
		}
		return &command.Error{Code: command.ExitNoAnswer, Err: errors.Join(lines...)}
	case errors.As(err, &failed):
		return command.Fail(command.ExitRefused, "%s: %s", failed.Server, failed.Text)
	case errors.Is(err, freelance.ErrBusy):
		return command.Fail(command.ExitRefused, "all servers are busy")
	}
	return err
}
