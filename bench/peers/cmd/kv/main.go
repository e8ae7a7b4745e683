// Command kv gives clustermap's CHP and other systems the same work in turns: one process
// sets random keys of a map, a server passes the updates on, and other processes hold
// replicas of the map.
//
//	cd bench/peers && go run ./cmd/kv
//	cd bench/peers && go run ./cmd/kv --mode latency --rate 1000
//	cd bench/peers && go run ./cmd/kv --systems chp,nats,redis --rounds 3 --json kv.json
//
// Publisher, server and each replica are processes of their own, connected over TCP on
// the loopback interface. A value has 32 bytes: publisher and number of the update, the
// time of sending, filling, and the number once more. First each key is set once, then the
// measured updates follow. A replica checks that every update arrives once and in order,
// and in the end compares its map with the one expected; if anything is wrong, the system
// has no figures. The rate is the measured updates divided by the time from the first one
// sent to the last one seen by the slowest replica. With --mode latency the publisher sends
// --rate updates a second; the latency is the time from there to the replica's check, by
// a clock that both processes share, and the worst of the replicas counts.
//
// The systems take turns in every round, in the opposite order in every second one.
//
//   - chp: our server and client with default options.
//   - bare: plain TCP with the bytes of CHP and hash tables, the least that the work takes.
//   - libzmq: a CHP server of the ZeroMQ Guide's design in C on libzmq, with the same bytes.
//   - guide: the same on CZMQ, with a poll for each message, closer to the guide's programs.
//   - redis: SET and PUBLISH in a pipeline to one Redis server, with subscribers.
//   - redis-tracking: SET, and replicas with Redis's client-side caching.
//   - nats: NATS core, which passes messages on and keeps nothing; all of one subject.
//   - nats-subjects: the same with a subject for each key.
//   - jetstream: the key-value store of NATS JetStream, in memory, with a watcher.
//   - etcd: one etcd server, which does not flush its log, with a watch.
//
// All are configured to be fast and to lose nothing; each file says how, and in what its
// system does less or more than the others. No server writes to a disk on purpose, and
// none is replicated.
//
// redis needs redis-server, libzmq a C compiler and libzmq, and guide CZMQ as well. A system
// whose program is missing has the reason in place of figures, and the exit code is 0.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"clustermap/bench/peers/internal/results"
	"clustermap/bench/peers/internal/systems"
	"clustermap/internal/bench/pipeline"
	"clustermap/internal/bench/worker"
	"clustermap/internal/bench/workload"
)

func main() {
	worker.Main(workers())
	worker.Run("kv", func(ctx context.Context) error { return run(ctx, os.Args, os.Stdout, os.Stderr) })
}

// What to measure.
const (
	modeRate    = "rate"
	modeLatency = "latency"
)

// config holds the values of the flags.
type config struct {
	mode                            string
	keys, updates, replicas, rounds int
	rate                            float64
	patience                        time.Duration
	systems                         []*systems.System
	file                            string
}

// maxUpdates limits --updates: a replica remembers the delay of each.
const maxUpdates = 1 << 30

func parse(args []string, stderr io.Writer) (*config, error) {
	var c config
	flags := flag.NewFlagSet("kv", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var known []string
	for _, s := range all {
		known = append(known, s.Name)
	}
	flags.StringVar(&c.mode, "mode", modeRate, "what to measure: rate or latency")
	flags.IntVar(&c.keys, "keys", 10_000, "keys of the map")
	flags.IntVar(&c.updates, "updates", 0, "measured updates; slow systems get a fixed part of them (0: 2,000,000, or 5 seconds with --mode latency)")
	flags.IntVar(&c.replicas, "replicas", 1, "processes with a replica")
	flags.IntVar(&c.rounds, "rounds", 5, "measurements of each system")
	flags.Float64Var(&c.rate, "rate", 1000, "updates a second with --mode latency")
	flags.DurationVar(&c.patience, "timeout", time.Minute, "how long to wait without progress")
	names := flags.String("systems", strings.Join(known, ","), "which systems, separated by commas")
	flags.StringVar(&c.file, "json", "", "also write the result to this file, as JSON")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("what is %q?", flags.Arg(0))
	case c.mode != modeRate && c.mode != modeLatency:
		return nil, fmt.Errorf("--mode %s: give rate or latency", c.mode)
	case c.keys < 1 || c.replicas < 1 || c.rounds < 1 || c.updates < 0 || c.updates > maxUpdates || c.keys > maxUpdates:
		return nil, errors.New("--keys, --replicas and --rounds must be positive, --updates not negative")
	case !(c.rate > 0) || c.rate > maxUpdates || c.patience <= 0:
		return nil, errors.New("--rate and --timeout must be positive")
	}
	if c.mode == modeRate {
		given := false
		flags.Visit(func(f *flag.Flag) { given = given || f.Name == "rate" })
		if given {
			return nil, errors.New("--rate is for --mode latency")
		}
		c.rate = 0
	}
	if c.updates == 0 {
		c.updates = 2_000_000
		if c.mode == modeLatency {
			c.updates = max(1, int(5*c.rate))
		}
	}
	// Ours comes first, for the others are compared with it.
	wanted := strings.Split(*names, ",")
	for _, name := range wanted {
		if systemOf(name) == nil {
			return nil, fmt.Errorf("there is no system %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	for _, s := range all {
		if slices.Contains(wanted, s.Name) {
			c.systems = append(c.systems, s)
		}
	}
	return &c, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := parse(args[1:], stderr)
	if err != nil {
		return err
	}
	r := &result{Machine: results.ThisMachine(), Command: args, Date: time.Now().Format(time.RFC3339), Rounds: c.rounds}
	for _, s := range c.systems {
		r.Cases = append(r.Cases, &entry{
			System: s.Name, Mode: c.mode, Keys: c.keys, ValueBytes: systems.ValueSize, Updates: c.spec(s).Updates,
			Replicas: c.replicas, Conflates: s.Conflates, Offered: c.rate,
		})
	}
	for round := range c.rounds {
		for i := range results.Turns(round, len(c.systems)) {
			e := r.Cases[i]
			if e.Error != "" {
				continue
			}
			fmt.Fprintf(stderr, "round %d of %d: %s\n", round+1, c.rounds, e.System)
			f, err := c.measure(ctx, c.systems[i])
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				fail(e, err.Error())
				e.Missing = errors.Is(err, worker.ErrMissing)
			default:
				add(e, f)
			}
		}
	}
	r.conclude()
	err = r.print(stdout)
	if c.file != "" {
		err = errors.Join(err, results.Write(c.file, r))
	}
	for _, e := range r.Cases {
		// A system that is not installed is no failure.
		if e.Error != "" && !e.Missing {
			err = errors.Join(err, fmt.Errorf("%s: %s", e.System, e.Error))
		}
	}
	return err
}

// spec is the work of a system. At a given rate all get the same updates.
func (c *config) spec(s *systems.System) workload.Spec {
	w := s.Spec(c.keys, c.updates)
	if c.mode == modeLatency {
		w.Updates = c.updates
	}
	return w
}

// measure starts the processes of a system and runs the workload through them once.
func (c *config) measure(ctx context.Context, s *systems.System) (f systems.Figure, err error) {
	run := &pipeline.Run{
		Pipeline: s.Name, Spec: c.spec(s), ServerArgs: []any{nil},
		Publishers: 1, Replicas: c.replicas, Rate: c.rate, Patience: c.patience,
	}
	o, err := run.Do(ctx)
	if err != nil {
		return f, err
	}
	return systems.FigureOf(run, o)
}

// workers are the roles of the processes of a run.
func workers() map[string]worker.Role {
	var lines []*pipeline.Pipeline
	for _, s := range all {
		lines = append(lines, &s.Pipeline)
	}
	return pipeline.Workers(lines...)
}
