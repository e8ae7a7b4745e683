package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// ErrUnsound is returned by Run, together with a result, if all runs completed but the
// updates that arrived are not those that were sent.
var ErrUnsound = errors.New("the result is unsound")

// Run runs all rounds and returns their result. The result is nil if the benchmark
// could not run.
func Run(ctx context.Context, c Config) (*Result, error) {
	if c.ProfileDir != "" {
		if err := os.MkdirAll(c.ProfileDir, 0o777); err != nil {
			return nil, err
		}
	}
	prefix := newPrefix(c.Server != "")
	expected := c.spec(prefix).Expected()
	rounds := c.rounds()
	result := newResult(&c)
	for i := range rounds {
		round := &Round{}
		// The pipelines take turns, so that other load on the machine affects all of them.
		for _, p := range []struct {
			roles, name string
			skip        bool
			into        **Measurement
		}{
			{"", "chp", false, &round.CHP},
			{barePrefix, "baseline", !c.Baseline, &round.Baseline},
			{dataPrefix, "data", c.Data == "", &round.Data},
			{pairPrefix, "pair", !c.Pair, &round.Pair},
		} {
			if p.skip {
				continue
			}
			r := run{Config: &c, prefix: p.roles, spec: c.spec(prefix), expected: expected}
			o, err := r.do(ctx, func(count uint64) {
				if c.Progress != nil {
					c.Progress(i+1, rounds, p.name, count)
				}
			})
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
