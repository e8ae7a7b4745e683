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
		for _, name := range pipelines {
			if !c.runs(name) {
				continue
			}
			r := &pipeline.Run{
				Pipeline: ours.Pipeline.Name, Spec: spec,
				Publishers: c.Publishers, Replicas: c.Replicas, Rate: c.Rate,
				Patience: c.Patience, ProfileDir: c.ProfileDir,
			}
			if c.Progress != nil {
				r.OnProgress = func(count uint64) { c.Progress(i+1, rounds, name, count) }
			}
			o, err := c.do(ctx, r, name)
			if err != nil {
				return nil, fmt.Errorf("round %d, %s: %w", i+1, name, err)
			}
			m, _ := round.of(name)
			*m = newMeasurement(&c, o, expected)
		}
		result.add(round)
	}
	result.conclude()
	if faults := result.faults(); faults != nil {
		return result, fmt.Errorf("%w: %w", ErrUnsound, faults)
	}
	return result, nil
}

// do completes the run of a pipeline, and runs it.
func (c *Config) do(ctx context.Context, r *pipeline.Run, name string) (_ *pipeline.Outcome, err error) {
	switch name {
	case plain: // a server in memory, or the one that exists
		r.ServerArgs = []any{ours.ServerArgs{}}
		if c.Server != "" {
			r.Servers, r.ClientArgs = []string{c.Server}, ours.NewClientArgs(c.Security)
		}
	case baseline:
		r.Pipeline, r.Label, r.ServerArgs = bare.Pipeline.Name, "bare", []any{nil}
	case pair:
		r.Label = name
		r.Check = func(ctx context.Context, servers []string) error { return ours.ComparePair(ctx, servers, c.Patience) }
		if r.ServerArgs, err = ours.PairServers(c.Patience); err != nil {
			return nil, err
		}
	case data, cluster: // with logs, in a directory that only this run uses
		dir, err := os.MkdirTemp(c.Data, "chp-bench-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir) // its processes have ended by then
		r.Label, r.ServerArgs = name, []any{ours.ServerArgs{Data: dir, Sync: c.sync(name).String()}}
		if name == data {
			break
		}
		r.Order = func(ctx context.Context, servers []string) ([]string, error) {
			return ours.Leader(ctx, servers, c.Patience)
		}
		r.Check = func(ctx context.Context, servers []string) error {
			return ours.CompareCluster(ctx, servers, c.Patience)
		}
		if r.ServerArgs, err = ours.ClusterServers(c.Cluster, dir, c.sync(name), 0); err != nil {
			return nil, err
		}
	}
	return r.Do(ctx)
}

// newPrefix returns the prefix of a run's keys: a fixed one if the run has its own
// server, otherwise a unique one.
func newPrefix(existing bool) string {
	if !existing {
		return "/bench/"
	}
	return "/bench-" + strings.ToLower(rand.Text()[:8]) + "/"
}
