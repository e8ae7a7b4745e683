package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// ErrUnsound is returned by Run, with a result, if the runs took place and what
// arrived is not what was sent.
var ErrUnsound = errors.New("the result is unsound")

// Run runs the rounds and returns what they showed. The result is nil if the
// benchmark could not be carried out.
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
		// In turn, so that whatever else the machine does hits all alike.
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
