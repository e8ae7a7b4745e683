package main

import (
	"context"
	"math"
	"strings"
	"time"

	"clustermap/internal/command"
	"clustermap/patterns/majordomo"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// defaultBroker is the endpoint of the brokers in the guide.
const defaultBroker = "tcp://127.0.0.1:5555"

// beats holds the heartbeat flags. A broker and its workers should use the same values.
type beats struct {
	heartbeat time.Duration
	liveness  command.Number
}

func (b *beats) register(flags *pflag.FlagSet) {
	b.liveness = majordomo.DefaultLiveness
	flags.DurationVar(&b.heartbeat, "heartbeat", majordomo.DefaultHeartbeat, "time between two heartbeats")
	flags.Var(&b.liveness, "liveness", "number of heartbeat times without a message after which the other side is lost")
}

func (b *beats) check() error {
	if b.heartbeat <= 0 || b.liveness <= 0 {
		return command.Fail(command.ExitUsage, "--heartbeat and --liveness must be above 0")
	}
	if b.heartbeat > math.MaxInt64/time.Duration(b.liveness) {
		return command.Fail(command.ExitUsage, "--heartbeat times --liveness is longer than 292 years")
	}
	return nil
}

func newBroker() *cobra.Command {
	var (
		bind  []string
		allow []string
		http  httpFlags
		beat  beats
		o     = majordomo.BrokerOptions{MaxWaiting: majordomo.DefaultMaxWaiting, MaxBytes: majordomo.DefaultMaxBytes, MaxDeliveries: majordomo.DefaultMaxDeliveries}
		keys  = command.ServerKeys{Keys: curve}
	)
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Distribute requests to the workers of services (Majordomo)",
		Long: `Runs a broker for the Majordomo Protocol, MDP/0.1 and MDP/0.2 at the same endpoints.
Workers register for a service by its name; clients send requests to services, and
each request goes to a free worker. Requests for a service without workers wait.

If a worker ends, or sends nothing for --liveness times --heartbeat, busy or not, its
request goes to another worker, up to --deliveries times in all. Clients are served in
turn.

The service mmi.service reports whether a service has workers; zdev services lists all
services.
` + allowWorkerHelp,
		Example: `  zdev broker
  zdev broker --bind tcp://*:5555 --bind ipc:///run/broker
  zdev broker --bind tcp://*:5555 --expiry 10s --heartbeat 1s
  zdev broker --bind tcp://*:5555 --allow-worker 'titanic.*=10.0.0.8'`,
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&bind, "bind", []string{defaultBroker}, "`endpoint` for clients and workers; repeat it for several")
	command.Endpoints(flags, "bind")
	beat.register(flags)
	flags.DurationVar(&o.Expiry, "expiry", majordomo.DefaultExpiry, "how long a request waits for a worker before it is dropped; negative means forever")
	flags.Var((*command.Number)(&o.MaxDeliveries), "deliveries", "maximum number of workers that a request is sent to if each of them ends")
	flags.Var((*command.Number)(&o.MaxWaiting), "max-waiting", "maximum number of waiting requests per service; one client may use half of them")
	flags.Var((*command.Bytes)(&o.MaxBytes), "max-bytes", "maximum total size of all requests in the broker")
	flags.StringArrayVar(&allow, "allow-worker", nil, "`rule` SERVICE=PEER,PEER... for who may be a worker of a service, or a file with one per line; repeat it for several")
	keys.Register(flags)
	http.register(flags)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		var err error
		if o.Socket.Security, err = keys.Security(); err != nil {
			return err
		}
		if o.AllowWorker, err = workerRules(allow, majordomo.AllowWorkers(o.Socket)); err != nil {
			return err
		}
		if err = beat.check(); err != nil {
			return err
		}
		if min(o.MaxWaiting, o.MaxBytes, o.MaxDeliveries) <= 0 {
			return command.Fail(command.ExitUsage, "--max-waiting, --max-bytes and --deliveries must be above 0")
		}
		o.Logger = command.NewLog(cmd.ErrOrStderr())
		o.Socket.Monitor = monitor(ctx, cmd, "bind")
		o.Heartbeat, o.Liveness = beat.heartbeat, int(beat.liveness)
		broker, err := majordomo.NewBroker(o)
		if err != nil {
			return err
		}
		defer broker.Close()
		var actual []string
		for _, endpoint := range bind {
			at, err := broker.Bind(ctx, endpoint)
			if err != nil {
				return command.EndpointError("--bind", endpoint, err)
			}
			actual = append(actual, at)
		}
		side, err := http.open(ctx, cmd, brokerMetrics(broker)...)
		if err != nil {
			return err
		}
		defer side.Close()
		command.Ready(cmd, o.Socket.Security, "broker "+strings.Join(actual, " "))
		<-ctx.Done()
		return broker.Close()
	})
	return cmd
}

// brokerMetrics returns the metrics of a broker for --http.
func brokerMetrics(b *majordomo.Broker) []prometheus.Collector {
	return []prometheus.Collector{
		counted("zdev_broker_requests_total", "Requests of clients.", func() uint64 { return b.Stats().Requests }),
		counted("zdev_broker_replies_total", "Last or only replies passed on to clients.", func() uint64 { return b.Stats().Replies }),
		counted("zdev_broker_malformed_total", "Invalid messages; each ended its peer's connection.", func() uint64 { return b.Stats().Malformed }),
		counted("zdev_broker_refused_total", "Requests and workers without room, and workers that were not allowed.", func() uint64 { return b.Stats().Refused }),
		counted("zdev_broker_expired_total", "Requests dropped because no worker took them in time.", func() uint64 { return b.Stats().Expired }),
		counted("zdev_broker_repeated_total", "Requests queued again because a worker was lost or gave them back.", func() uint64 { return b.Stats().Repeated }),
		counted("zdev_broker_undelivered_total", "Requests dropped because too many workers were lost while they executed them.", func() uint64 { return b.Stats().Undelivered }),
		counted("zdev_broker_abandoned_total", "Requests and replies dropped because the client was gone.", func() uint64 { return b.Stats().Abandoned }),
		counted("zdev_broker_lost_workers_total", "Workers that were silent or disconnected.", func() uint64 { return b.Stats().Lost }),
		measured("zdev_broker_services", "Services.", func() int { return b.Stats().Services }),
		measured("zdev_broker_workers", "Workers.", func() int { return b.Stats().Workers }),
		measured("zdev_broker_request_bytes", "Bytes of all requests.", func() int { return b.Stats().Bytes }),
	}
}
