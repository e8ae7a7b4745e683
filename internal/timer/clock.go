package timer

import "time"

// start is so long ago that the clock is above 0 in a test, too, whose time begins in the
// year 2000 (testing/synctest).
var start = time.Now().Add(-40 * 365 * 24 * time.Hour)

// Now returns the time on the monotonic clock of this process, which began long ago.
// Deadlines are times on this clock.
func Now() time.Duration { return time.Since(start) }

// TimeOf returns the time at which Now returned at, or will return it.
func TimeOf(at time.Duration) time.Time { return time.Now().Add(at - Now()) }

// At returns what Now returned, or will return, at t.
func At(t time.Time) time.Duration { return t.Sub(start) }
