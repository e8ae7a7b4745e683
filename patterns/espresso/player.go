package espresso

import (
	"context"
	"io"
	"time"
)

// Play reads a recording and calls do for each event: for the first one at once, and for
// the others after their time since the first one, divided by speed. A speed of 1 is the
// original speed, 10 is ten times as fast, and 0 means no waits. If do is late for an
// event, the following ones catch up. The event is valid until do returns.
//
// Play returns nil at the end, the first error of do, the context's error, or the
// reader's: a [TornError] means that all events before the torn end were played.
func Play(ctx context.Context, r *Reader, speed float64, do func(*Event) error) error {
	var (
		e       Event
		first   time.Time // of the recording
		begun   time.Time
		waiting = time.NewTimer(time.Hour)
	)
	defer waiting.Stop()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.Next(&e); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if begun.IsZero() {
			first, begun = e.Time, time.Now()
		}
		if speed > 0 {
			due := max(0, min(float64(e.Time.Sub(first))/speed, float64(maxWait)))
			if wait := time.Duration(due) - time.Since(begun); wait > 0 {
				waiting.Reset(wait)
				select {
				case <-waiting.C:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		if err := do(&e); err != nil {
			return err
		}
	}
}
