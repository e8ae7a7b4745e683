// Package pace makes the publishers of benchmarks wait for their next update.
package pace

import (
	"context"
	"time"
)

// tick is the shortest sleep. Without it a publisher that sends a million updates a second
// looks for due ones all the time, and takes a processor from the programs that it measures.
const tick = 100 * time.Microsecond

// napMost is the longest sleep for which a timer of the program is not exact enough.
const napMost = 500 * time.Microsecond

// Sleep waits until due, and at least for Tick. It returns an error when ctx ends.
func Sleep(ctx context.Context, due time.Time) error {
	d := max(time.Until(due), tick)
	if d < napMost {
		nap(d)
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
