package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"clustermap/chp"
	"clustermap/chp/commit"
	"clustermap/cmd/chp/internal/bench"
	"clustermap/internal/command"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
)

func newBench() *cobra.Command {
	c := bench.Config{}
	var n connection
	var asJSON bool
	var sync commit.Policy
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure updates from publishers through a server to replicas",
		Long: `Runs publishers, a server and replicas, each in its own process on this machine, and
checks every update that arrives: each replica must receive each publisher's updates
once and in order, and all replicas must end with the content that was sent. Only
then it prints a rate; otherwise it reports the fault and exits with 1.

The time is from the first send to the arrival of the last update at the last
replica, after a warm-up that is checked but not measured. Latency is from Set to the
arrival at a replica; at full speed most of it is time in queues, so measure it with
--rate.

With --baseline each round also sends the same bytes through a bare TCP pipeline,
which only parses, numbers, stores and forwards them; the ratio is the server's rate
divided by that of the pipeline.

With --data each round also runs a server with a log, in a new directory that is
removed afterwards. With --pair each round also runs a pair of servers where each
update is published when both have it (--acks 2); both must end with the same keys
and sequence. With --cluster each round also runs a cluster of so many nodes, each
with a log in a directory of its own below --data, or the one for temporary files if
that is not given: it should be on a disk. Publishers and replicas use the leader; all
nodes must end with the same keys and sequence. The ratios are their rates divided by
that of the plain server in the same round.

The last row has the median of each column: of the rounds' ratios, not the ratio of
the median rates.

With --server it uses an existing server instead of a new one; the keys are in a
separate subtree and are deleted at the end.`,
		Example: `  chp bench
  chp bench --baseline --json
  chp bench --data /var/tmp --sync always --pair
  chp bench --cluster 3 --data /var/tmp
  chp bench --publishers 2 --replicas 4 --value-size 256
  chp bench --rate 100000`,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&c.Updates, "updates", 5_000_000, "measured updates per round, of all publishers together")
	f.IntVar(&c.Keys, "keys", 10_000, "number of keys")
	f.IntVar(&c.ValueSize, "value-size", 32, "size of a value in bytes, 16 or more")
	f.IntVar(&c.Publishers, "publishers", 1, "number of publisher processes")
	f.IntVar(&c.Replicas, "replicas", 1, "number of replica processes")
	f.BoolVar(&c.Baseline, "baseline", false, "also run a bare TCP pipeline in each round, and print the ratio")
	f.StringVar(&c.Data, "data", "", "also run a server with a log under this `directory` in each round, and print the ratio")
	f.TextVar(&sync, "sync", commit.Policy{}, "when logs are flushed: always, interval=`D`, never (default of --cluster always)")
	f.BoolVar(&c.Pair, "pair", false, "also run a pair of servers in each round, and print the ratio")
	f.IntVar(&c.Cluster, "cluster", 0, "also run a cluster of 3 or 5 `nodes` in each round, and print the ratio")
	f.IntVar(&c.Rounds, "rounds", 0, "number of rounds (default 1, or 3 with --baseline, --data, --pair or --cluster)")
	f.IntVar(&c.Warmup, "warmup", 500_000, "updates before the measured ones")
	f.Float64Var(&c.Rate, "rate", 0, "updates per second, of all publishers together (default no limit)")
	f.BoolVar(&asJSON, "json", false, "print the result as JSON")
	f.StringVar(&c.ProfileDir, "profile", "", "write a CPU profile of each process into this `directory`")
	f.DurationVar(&c.Patience, "timeout", 30*time.Second, "longest time without progress")
	f.StringArrayVar(&n.flags, "server", nil, "an existing server, tcp://HOST:PORT or ipc://PATH (default: start one)")
	n.curve = command.ClientKeys{Keys: curve}
	n.curve.Register(f)
	n.stderr = errorOutput{cmd}
	if err := cmd.MarkFlagDirname("data"); err != nil {
		panic(err) // the flag does not exist
	}
	command.Complete(cmd, "sync", "always", "interval=100ms", "never")
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("sync") {
			if c.Data == "" && c.Cluster == 0 {
				return fail(exitUsage, "--sync needs --data or --cluster")
			}
			c.Sync = &sync
		}
		if cmd.Flags().Changed("rounds") && c.Rounds == 0 {
			return fail(exitUsage, "--rounds 0: give 1 to 1000")
		}
		if err := c.Validate(); err != nil {
			return fail(exitUsage, "%w", err)
		}
		if err := isDirectory(c.Data); err != nil {
			return fail(exitUsage, "--data: %w", err)
		}
		if err := n.benchServer(ctx, &c); err != nil {
			return err
		}
		bar := benchProgress(cmd.ErrOrStderr(), &c)
		result, err := bench.Run(ctx, c)
		bar.finish()
		if err != nil && !errors.Is(err, bench.ErrUnsound) {
			return err
		}
		if asJSON {
			out := json.NewEncoder(cmd.OutOrStdout())
			out.SetIndent("", "  ")
			return errors.Join(out.Encode(result), err)
		}
		if err != nil {
			return err
		}
		return result.Print(cmd.OutOrStdout())
	})
	return cmd
}

// isDirectory returns an error if there is no directory of that name. Without a name it
// returns nil.
func isDirectory(name string) error {
	if name == "" {
		return nil
	}
	info, err := os.Stat(name)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", name)
	}
	return err
}

// benchServer makes the benchmark use the server of --server, and checks that it can be
// reached.
func (n *connection) benchServer(ctx context.Context, c *bench.Config) error {
	if len(n.flags) == 0 {
		if n.curve.Given() {
			return fail(exitUsage, "--curve-key and --curve-server-key are for an existing server: add --server")
		}
		return nil
	}
	if c.Data != "" || c.Pair || c.Cluster != 0 {
		return fail(exitUsage, "--data, --pair and --cluster exclude --server: they are compared with a plain server that chp bench starts")
	}
	n.timeout, n.given = c.Patience, func() bool { return false }
	servers, err := n.servers()
	if err != nil {
		return err
	}
	if len(servers) > 1 {
		return fail(exitUsage, "--server: only one is possible")
	}
	c.Server, c.Security = servers[0], n.security
	// A client that holds one key checks that the server can be reached.
	probe, err := n.open(ctx, chp.ClientOptions{Subtrees: []string{"/bench"}})
	if err != nil {
		return err
	}
	return probe.Close()
}

// benchProgress has the benchmark draw a bar on a terminal.
func benchProgress(w io.Writer, c *bench.Config) *progress {
	terminal := command.Terminal(w)
	if terminal == nil {
		return &progress{}
	}
	bar := progressbar.NewOptions(c.Updates,
		progressbar.OptionSetWriter(terminal),
		progressbar.OptionShowCount(),
		progressbar.OptionClearOnFinish(),
	)
	c.Progress = func(round, rounds int, what string, count uint64) {
		bar.Describe(fmt.Sprintf("round %d of %d, %s", round, rounds, what))
		// A full bar is finished for good, and the next round begins at 0.
		bar.Set(int(min(count, uint64(c.Updates-1))))
	}
	return &progress{bar: bar}
}
