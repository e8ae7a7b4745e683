// Command cluster gives clusters of three nodes of clustermap and of other systems the same work in turns.
// The nodes are processes on this machine, each with a log on the same disk that is flushed before
// anything is acknowledged.
//
//	cd bench/peers && go run ./cmd/cluster --dir /var/tmp
//	cd bench/peers && go run ./cmd/cluster --dir /var/tmp --modes put,failover --json cluster.json
//	cd bench/peers && go run ./cmd/cluster --dir /var/tmp --systems chp,etcd --rounds 3
//
// What is measured:
//
//   - rate: one publisher with many updates of 32-byte values under way, the leader, and one watching
//     replica, which checks that every update comes once, and in order those of a key at least. Updates
//     a second, from the first one sent to the last one seen.
//   - put: one caller that waits for each put. Half of them take no longer, and 99 %.
//   - puts: --callers of them at a time, over four connections. Puts a second.
//   - failover: the leader's process is killed (kill -9) under a caller. Time until a put that began after
//     the kill is acknowledged, by another node; one begins every 5 ms.
//   - reads: linearizable reads, --callers at a time at each of the three nodes. Reads a second.
//
// The systems take turns in every round, in the opposite order in every second one, each time with a new
// cluster:
//
//   - chp: ours, what chp serve --cluster runs.
//   - chp-100ms: the same with --election-timeout 100ms, for failover.
//   - etcd: three members.
//   - jetstream: the key-value store of NATS JetStream with three replicas on disk, and sync_interval: always.
//
// All have their defaults otherwise; each file says what its system does more or less than the others. All
// directories are in --dir, which should be on a disk: a file system in memory flushes nothing.
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
	"clustermap/internal/bench/pipeline"
	"clustermap/internal/bench/worker"
)

func main() {
	worker.Main(workers())
	worker.Run("cluster", func(ctx context.Context) error { return run(ctx, os.Args, os.Stdout, os.Stderr) })
}

// What to measure.
const (
	modeRate     = "rate"
	modePut      = "put"
	modePuts     = "puts"
	modeFailover = "failover"
	modeReads    = "reads"
)

var modes = []string{modeRate, modePut, modePuts, modeFailover, modeReads}

// config holds the values of the flags.
type config struct {
	modes                          []string
	keys, updates, callers, rounds int
	time, patience, election       time.Duration
	systems                        []*system
	dir, file                      string
}

// most limits numbers of the flags.
const most = 1 << 30

func parse(args []string, stderr io.Writer) (*config, error) {
	var c config
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var known []string
	for _, s := range all {
		known = append(known, s.name)
	}
	what := flags.String("modes", strings.Join(modes, ","), "what to measure, separated by commas")
	names := flags.String("systems", strings.Join(known, ","), "which systems, separated by commas")
	flags.StringVar(&c.dir, "dir", "", "directory on a disk for those of the nodes (default the one for temporary files)")
	flags.IntVar(&c.keys, "keys", 10_000, "rate: keys of the map")
	flags.IntVar(&c.updates, "updates", 2_000_000, "rate: measured updates; slow systems get a fixed part of them")
	flags.IntVar(&c.callers, "callers", 64, "puts, reads: how many calls are under way")
	flags.DurationVar(&c.time, "time", 5*time.Second, "put, puts, reads: how long to measure, after a fifth of it to warm up")
	flags.DurationVar(&c.election, "election-timeout", 0, "of chp and etcd (default that of the system); longer for slow disks")
	flags.IntVar(&c.rounds, "rounds", 5, "measurements of each system")
	flags.DurationVar(&c.patience, "timeout", time.Minute, "how long to wait without progress")
	flags.StringVar(&c.file, "json", "", "also write the result to this file, as JSON")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("what is %q?", flags.Arg(0))
	case c.keys < 1 || c.updates < 1 || c.callers < 1 || c.rounds < 1 || max(c.keys, c.updates, c.callers, c.rounds) > most:
		return nil, errors.New("--keys, --updates, --callers and --rounds must be positive")
	case c.time <= 0 || c.patience <= 0 || c.election < 0:
		return nil, errors.New("--time and --timeout must be positive, --election-timeout not negative")
	}
	for _, mode := range strings.Split(*what, ",") {
		if !slices.Contains(modes, mode) {
			return nil, fmt.Errorf("there is no mode %q; there are %s", mode, strings.Join(modes, ", "))
		}
		c.modes = append(c.modes, mode)
	}
	// Ours comes first, for the others are compared with it.
	wanted := strings.Split(*names, ",")
	for _, name := range wanted {
		if systemOf(name) == nil {
			return nil, fmt.Errorf("there is no system %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	for _, s := range all {
		if slices.Contains(wanted, s.name) {
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
	r := &result{
		Machine: results.ThisMachine(), Command: args, Date: time.Now().Format(time.RFC3339), Rounds: c.rounds, Nodes: nodes,
		Keys: c.keys, ValueBytes: valueSize, Callers: c.callers,
	}
	for _, mode := range c.modes {
		var list []*system
		var cases []*entry
		for _, s := range c.systems {
			if s.only != "" && s.only != mode {
				continue
			}
			e := &entry{System: s.name, Mode: mode, Unit: units[mode], Error: s.without[mode]}
			if mode == modeRate {
				e.Updates = s.Spec(c.keys, c.updates).Updates
			}
			e.Missing = e.Error != ""
			list, cases = append(list, s), append(cases, e)
		}
		r.Cases = append(r.Cases, cases...)
		for round := range c.rounds {
			for i := range results.Turns(round, len(list)) {
				e := cases[i]
				if e.Error != "" {
					continue
				}
				fmt.Fprintf(stderr, "%s, round %d of %d: %s\n", mode, round+1, c.rounds, e.System)
				f, err := c.measure(ctx, list[i], mode)
				switch {
				case ctx.Err() != nil:
					return ctx.Err()
				case err != nil:
					fail(e, err.Error())
				default:
					add(e, f)
				}
			}
		}
	}
	r.conclude()
	err = r.print(stdout)
	if c.file != "" {
		err = errors.Join(err, results.Write(c.file, r))
	}
	for _, e := range r.Cases {
		if e.Error != "" && !e.Missing {
			err = errors.Join(err, fmt.Errorf("%s, %s: %s", e.Mode, e.System, e.Error))
		}
	}
	return err
}

// workers are the roles of the processes of a run.
func workers() map[string]worker.Role {
	return pipeline.Workers(&chpSystem.Pipeline, &etcdSystem.Pipeline, &jetstreamSystem.Pipeline)
}
