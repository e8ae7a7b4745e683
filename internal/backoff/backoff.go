// Package backoff computes the wait before a failed operation is tried again.
package backoff

import (
	"math/rand/v2"
	"time"
)

// Wait returns how long to wait after the n-th try in a row that failed, where the first
// is n = 0: about lowest, and about twice as long after each more, up to
// highest. It is chosen at random from the upper half of that, so that many callers that
// failed at once do not come back at once. Both must be above 0.
func Wait(lowest, highest time.Duration, n int) time.Duration {
	d := highest
	// A shift that loses bits is above any bound.
	if n < 62 && lowest<<n>>n == lowest {
		d = min(lowest<<n, highest)
	}
	return d - rand.N(d/2+1)
}

// A Backoff counts tries for Wait. It is for one goroutine.
type Backoff struct {
	Min, Max time.Duration // lowest and highest of Wait

	tries int
}

// Next returns how long to wait after one more try that failed.
func (b *Backoff) Next() time.Duration {
	d := Wait(b.Min, b.Max, b.tries)
	b.tries = min(b.tries+1, 62)
	return d
}

// Reset begins again with Min, after a try that has worked.
func (b *Backoff) Reset() { b.tries = 0 }
