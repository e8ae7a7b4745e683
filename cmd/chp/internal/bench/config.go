// Package bench measures a CHP server: publishers, the server and replicas run
// as separate processes, which call Main. Every update that arrives is checked, and only a run without
// faults has a rate.
package bench

import (
	"fmt"
	"math"
	"time"

	"clustermap/chp/commit"
	"clustermap/internal/bench/workload"
	"clustermap/sockets"
)

// Config specifies a benchmark.
type Config struct {
	Updates    int // measured updates per round, of all publishers together
	Warmup     int // updates before the measured ones
	Keys       int
	ValueSize  int // bytes
	Publishers int
	Replicas   int
	Rate       float64          // updates per second, of all publishers together; 0 means no limit
	Rounds     int              // if 0, 1, or 3 with Baseline, Data, Pair or Cluster
	Baseline   bool             // also run the bare pipeline
	Data       string           // if not "", also run a server with a log in a new directory under this one
	Sync       *commit.Policy   // flush policy of logs, if not nil; otherwise the server's and the cluster's default
	Pair       bool             // also run a pair of servers
	Cluster    int              // if not 0, also run a cluster of 3 or 5 nodes, with directories under Data, or temporary ones
	Server     string           // an existing server; if "", each round starts one
	Security   sockets.Security // with which clients connect to Server: none or CURVE
	Patience   time.Duration
	ProfileDir string // if not "", where the peers write CPU profiles

	// Progress, if not nil, is called with the number of measured updates that have
	// arrived.
	Progress func(round, rounds int, what string, count uint64)
}

// maxUpdates limits the updates of a round, and those of its warm-up, so that their
// sum fits an int on every system.
const maxUpdates = min(1<<40, math.MaxInt/2)

// Validate returns an error if the configuration is invalid.
func (c *Config) Validate() error {
	for _, f := range []struct {
		flag        string
		value       int
		least, most int
	}{
		{"--updates", c.Updates, 1, maxUpdates},
		{"--warmup", c.Warmup, 0, maxUpdates},
		{"--keys", c.Keys, 1, 100_000_000},
		{"--value-size", c.ValueSize, workload.MinValueSize, workload.MaxValueSize},
		{"--publishers", c.Publishers, 1, 1000},
		{"--replicas", c.Replicas, 1, 1000},
		{"--rounds", c.Rounds, 0, 1000},
	} {
		if f.value < f.least || f.value > f.most {
			return fmt.Errorf("%s %d: give %d to %d", f.flag, f.value, f.least, f.most)
		}
	}
	switch {
	case c.Cluster != 0 && c.Cluster != 3 && c.Cluster != 5:
		return fmt.Errorf("--cluster %d: give 3 or 5 nodes", c.Cluster)
	case c.Keys < c.Publishers:
		return fmt.Errorf("--keys %d: each of %d publishers needs one of its own", c.Keys, c.Publishers)
	case c.Rate < 0:
		return fmt.Errorf("--rate %g: give updates a second, or 0 for as many as go", c.Rate)
	case c.Rate > 0 && c.compares() != "":
		return fmt.Errorf("--rate and %s exclude each other: a ratio of rates that were set says nothing", c.compares())
	case c.Patience <= 0:
		return fmt.Errorf("--timeout %v: give a time above 0", c.Patience)
	}
	return nil
}

// runs reports whether a pipeline is part of each round.
func (c *Config) runs(name string) bool {
	switch name {
	case baseline:
		return c.Baseline
	case data:
		return c.Data != ""
	case pair:
		return c.Pair
	case cluster:
		return c.Cluster != 0
	}
	return true
}

// compares returns a flag that selects another pipeline beside the plain server, or
// "".
func (c *Config) compares() string {
	for _, name := range pipelines[1:] {
		if c.runs(name) {
			return "--" + name
		}
	}
	return ""
}

// sync returns the flush policy of a pipeline's logs.
func (c *Config) sync(name string) commit.Policy {
	switch {
	case c.Sync != nil:
		return *c.Sync
	case name == cluster:
		return commit.Always()
	}
	return commit.Policy{}
}

func (c *Config) rounds() int {
	switch {
	case c.Rounds > 0:
		return c.Rounds
	case c.compares() != "":
		return 3
	}
	return 1
}

// spec returns the workload with the given key prefix.
func (c *Config) spec(prefix string) workload.Spec {
	subtree := ""
	if c.Server != "" {
		subtree = prefix
	}
	return workload.Spec{
		Prefix:     prefix,
		Subtree:    subtree,
		Updates:    c.Updates,
		Warmup:     c.Warmup,
		Keys:       c.Keys,
		ValueSize:  c.ValueSize,
		Publishers: c.Publishers,
	}
}
