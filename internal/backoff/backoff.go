// Package backoff is how long to wait before something is tried again.
package backoff

import (
	"math/rand/v2"
	"time"
)

// A Backoff is a sequence of waiting times. The first is about Min, each one is
// twice the one before, and none is above Max. Each is chosen at random from the
// upper half of that, so that many who began to wait at once do not come back
// at once. It is for one goroutine.
type Backoff struct {
	// Min and Max must be above 0. Max is at least Min.
	Min, Max time.Duration

	tries uint
}

// Next returns how long to wait now: from half to all of min(Min<<n, Max) at
// the n-th call after Reset, where the first is n = 0.
func (b *Backoff) Next() time.Duration {
	d := b.Max
	// A shift that loses bits is above Max, too.
	if b.tries < 62 && b.Min<<b.tries>>b.tries == b.Min {
		d = min(b.Min<<b.tries, b.Max)
		b.tries++
	}
	return d - rand.N(d/2+1)
}

// Reset begins again with Min: what was tried has worked.
func (b *Backoff) Reset() { b.tries = 0 }
