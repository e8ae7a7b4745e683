package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"

	"clustermap/internal/bench/bare"
	"clustermap/internal/bench/ours"
	"clustermap/internal/bench/pipeline"
	"clustermap/internal/bench/worker"
)

// ErrUnsound is returned by Run, together with a result, if all runs completed but the
// updates that arrived are not those that were sent.
var ErrUnsound = errors.New("the result is unsound")

// Main does the work of a process that a benchmark has started, and ends it. In another
// process it does nothing.
func Main() { worker.Main(pipeline.Workers(&ours.Pipeline, &bare.Pipeline)) }

// Run runs all rounds and returns their result. The result is nil if the benchmark
// could not run.
func Run(ctx context.Context, c Config) (*Result, error) {
	if c.ProfileDir != "" {
		if err := os.MkdirAll(c.ProfileDir, 0o777); err != nil {
			return nil, err
		}
	}
	spec := c.spec(newPrefix(c.Server != ""))
	expected := spec.Expected()
	rounds := c.rounds()
	result := newResult(&c)
	for i := range rounds {
		round := &Round{}
		// The pipelines take turns, so that other load on the machine affects all of them.
		for _, p := range []struct {
			name string
			skip bool
			into **Measurement
			// run completes the run, and returns what is to be done after it.
			run func(r *pipeline.Run) (after func(), err error)
		}{
			{"chp", false, &round.CHP, c.chp},
			{"baseline", !c.Baseline, &round.Baseline, c.baseline},
			{"data", c.Data == "", &round.Data, c.data},
			{"pair", !c.Pair, &round.Pair, c.pair},
		} {
			if p.skip {
				continue
			}
			r := &pipeline.Run{
				Pipeline: ours.Pipeline.Name, Spec: spec,
				Publishers: c.Publishers, Replicas: c.Replicas, Rate: c.Rate,
				Patience: c.Patience, ProfileDir: c.ProfileDir,
			}
			if c.Progress != nil {
				r.OnProgress = func(count uint64) { c.Progress(i+1, rounds, p.name, count) }
			}
			o, err := do(ctx, r, p.run)
			if err != nil {
				return nil, fmt.Errorf("round %d, %s: %w", i+1, p.name, err)
			}
			*p.into = newMeasurement(&c, o, expected)
		}
		result.add(round)
	}
	result.conclude()
	if faults := result.faults(); faults != nil {
		return result, fmt.Errorf("%w: %w", ErrUnsound, faults)
	}
	return result, nil
}

func do(ctx context.Context, r *pipeline.Run, complete func(*pipeline.Run) (func(), error)) (*pipeline.Outcome, error) {
	after, err := complete(r)
	if err != nil {
		return nil, err
	}
	defer after()
	return r.Do(ctx)
}

func nothing() {}

// chp is a server in memory, or the one that exists.
func (c *Config) chp(r *pipeline.Run) (after func(), err error) {
	r.ServerArgs = []any{ours.ServerArgs{}}
	if c.Server != "" {
		r.Servers, r.ClientArgs = []string{c.Server}, ours.NewClientArgs(c.Security)
	}
	return nothing, nil
}

func (c *Config) baseline(r *pipeline.Run) (after func(), err error) {
	r.Pipeline, r.Label, r.ServerArgs = bare.Pipeline.Name, "bare", []any{nil}
	return nothing, nil
}

// data is a server with a log, in a directory that only this run uses.
func (c *Config) data(r *pipeline.Run) (after func(), err error) {
	r.Label = "data"
	dir, err := os.MkdirTemp(c.Data, "chp-bench-")
	r.ServerArgs = []any{ours.ServerArgs{Data: dir, Sync: c.Sync.String()}}
	return func() { os.RemoveAll(dir) }, err // its processes have ended by then
}

func (c *Config) pair(r *pipeline.Run) (after func(), err error) {
	r.Label = "pair"
	r.Check = func(ctx context.Context, servers []string) error {
		return ours.ComparePair(ctx, servers, c.Patience)
	}
	r.ServerArgs, err = ours.PairServers(c.Patience)
	return nothing, err
}

// newPrefix returns the prefix of a run's keys: a fixed one if the run has its own
// server, otherwise a unique one.
func newPrefix(existing bool) string {
	if !existing {
		return "/bench/"
	}
	return "/bench-" + strings.ToLower(rand.Text()[:8]) + "/"
}
