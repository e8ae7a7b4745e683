package main

import (
	"context"
	"errors"

	"clustermap/internal/command"
	"clustermap/patterns/majordomo"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// atBroker holds the flags of a command that connects to a broker.
type atBroker struct {
	broker, mdp string
	keys        command.ClientKeys
}

func (a *atBroker) register(cmd *cobra.Command, flags *pflag.FlagSet) {
	a.registerConnection(flags)
	flags.StringVar(&a.mdp, "mdp", "0.1", "`version` of the Majordomo Protocol: 0.1, 0.2")
	command.Complete(cmd, "mdp", "0.1", "0.2")
}

// registerConnection is like register without the version, for protocols that use version
// 0.1 only.
func (a *atBroker) registerConnection(flags *pflag.FlagSet) {
	flags.StringVar(&a.broker, "broker", defaultBroker, "`endpoint` of the broker")
	command.Endpoints(flags, "broker")
	a.keys = command.ClientKeys{Keys: curve}
	a.keys.Register(flags)
}

func (a *atBroker) version() (majordomo.Version, error) {
	switch a.mdp {
	case "0.1":
		return majordomo.Version01, nil
	case "0.2":
		return majordomo.Version02, nil
	}
	return 0, command.Fail(command.ExitUsage, "--mdp %q: give 0.1 or 0.2", a.mdp)
}

// brokerError adds an exit code to an error of NewWorker or NewClient.
func (a *atBroker) brokerError(err error) error {
	switch {
	case errors.Is(err, majordomo.ErrService):
		return command.Fail(command.ExitUsage, "the name of a service has 1 to %d bytes", majordomo.MaxServiceName)
	case errors.Is(err, majordomo.ErrReserved):
		return errReserved
	}
	return command.EndpointError("--broker", a.broker, err)
}

// errReserved is the error for a service that no worker can serve.
var errReserved = command.Fail(command.ExitUsage, "names that begin with %s are reserved for the broker", majordomo.ReservedPrefix)

func newWorker() *cobra.Command {
	var (
		at       atBroker
		beat     beats
		echo     bool
		o        = majordomo.WorkerOptions{Concurrency: majordomo.DefaultConcurrency}
		maxReply = command.Bytes(defaultMaxReply)
		http     httpFlags
	)
	cmd := &cobra.Command{
		Use:   "worker SERVICE (--echo | -- COMMAND [ARG...])",
		Short: "Execute the requests of a service with a command (Majordomo)",
		Long: `Registers with a broker for SERVICE. COMMAND runs once for each request: it reads the
concatenated frames of the request from standard input and writes the reply to standard
output. If its exit status is not 0, the client gets an error with the last line of its
standard error. --echo returns requests unchanged.

The worker sends heartbeats to the broker while COMMAND runs. If the connection is lost,
COMMAND is killed: the broker sends the request to another worker, so a request may be
executed more than once.

If the worker is killed with SIGKILL, Linux kills COMMAND too, but not its child
processes. On other systems COMMAND continues.

--concurrency N runs up to N commands at the same time. While the broker cannot be
reached, the worker tries to connect, and reports that on standard error.`,
		Example: `  zdev worker echo --echo
  zdev worker upper -- tr a-z A-Z
  zdev worker thumbnail --concurrency 4 --broker tcp://10.0.0.7:5555 \
    -- convert - -resize 100 -`,
		Args: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			switch {
			case dash < 0 && len(args) != 1, dash >= 0 && dash != 1:
				return errors.New("give the name of one service, and the command after --")
			case echo == (dash >= 0):
				return errors.New("give either --echo or a command after --")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := cmd.Flags()
	at.register(cmd, flags)
	beat.register(flags)
	flags.BoolVar(&echo, "echo", false, "reply with the request")
	flags.Var((*command.Number)(&o.Concurrency), "concurrency", "maximum number of requests executed at the same time")
	flags.Var(&maxReply, "max-reply", "maximum size of the command's output")
	http.register(flags)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		var err error
		if o.Version, err = at.version(); err != nil {
			return err
		}
		if err := beat.check(); err != nil {
			return err
		}
		if o.Concurrency <= 0 || maxReply <= 0 {
			return command.Fail(command.ExitUsage, "--concurrency and --max-reply must be above 0")
		}
		if o.Concurrency > majordomo.MaxConcurrency {
			return command.Fail(command.ExitUsage, "--concurrency is at most %d", majordomo.MaxConcurrency)
		}
		o.Broker, o.Heartbeat, o.Liveness = at.broker, beat.heartbeat, int(beat.liveness)
		if o.Socket.Security, err = at.keys.Security(); err != nil {
			return err
		}
		if !echo {
			o.Ahead = 1 // running a command takes longer than sending a request
		}
		handle, err := handler(echo, args[1:], maxReply)
		if err != nil {
			return err
		}
		o.Socket.Monitor = at.news(ctx, cmd)
		o.OnDismiss = at.dismissed(ctx, cmd, args[0])
		worker, err := majordomo.NewWorker(args[0], handle, o)
		if err != nil {
			return at.brokerError(err)
		}
		defer worker.Close()
		side, err := http.openUntil(ctx, cmd, func() bool { return worker.Stats().Connected > 0 }, workerMetrics(worker)...)
		if err != nil {
			return err
		}
		defer side.Close()
		if worker.WaitRegistered(ctx) == nil {
			command.Ready(cmd, o.Socket.Security, "worker of "+args[0]+" at "+at.broker)
		}
		<-ctx.Done()
		return worker.Close()
	})
	return cmd
}

// workerMetrics returns the metrics of a worker for --http.
func workerMetrics(w *majordomo.Worker) []prometheus.Collector {
	return []prometheus.Collector{
		counted("zdev_worker_requests_total", "Requests handled.", func() uint64 { return w.Stats().Requests }),
		counted("zdev_worker_failed_total", "Requests that the command failed for.", func() uint64 { return w.Stats().Failed }),
		counted("zdev_worker_returned_total", "Requests given back to the broker.", func() uint64 { return w.Stats().Returned }),
		counted("zdev_worker_malformed_total", "Invalid messages; each ended its connection.", func() uint64 { return w.Stats().Malformed }),
		counted("zdev_worker_silent_total", "Connections ended because the broker was silent.", func() uint64 { return w.Stats().Silent }),
		counted("zdev_worker_sessions_total", "Connections that were registered.", func() uint64 { return w.Stats().Sessions }),
		measured("zdev_worker_connected", "Connections registered now.", func() int { return w.Stats().Connected }),
	}
}
