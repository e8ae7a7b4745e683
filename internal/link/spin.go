//go:build linux && !portable

package link

import (
	"runtime"
	"time"
)

// Spin has a receive call that reads the connection itself look again for a
// while before it sleeps, for Limit at most. To put a thread to sleep
// and to wake it takes longer than the answer of a peer on the same machine does.
//
// Where that was in vain, the next wait sleeps at once, then the next three, and
// so on up to maxSkip: what does not help costs next to nothing.
type Spin struct {
	Limit   time.Duration // 0: never
	looking bool          // in this wait
	until   time.Time     // for so long
	misses  int           // looks in vain in a row, as far as they count
	skip    int           // waits still to come without
}

// maxSkip bounds the waits that are slept through after a look in vain.
const maxSkip = 63

// NewSpin returns a Spin that looks for busyPoll; never, if that is negative.
func NewSpin(busyPoll time.Duration) (s Spin) {
	// With one processor for all, the one who could send would wait for us.
	if runtime.GOMAXPROCS(0) > 1 {
		s.Limit = max(busyPoll, 0)
	}
	return s
}

// again says, when there is nothing to read, whether to look again.
func (s *Spin) again() bool {
	switch {
	case s.looking:
		if time.Now().Before(s.until) {
			return true
		}
		s.looking = false
		s.skip = min(1<<s.misses, maxSkip+1) - 1
		if s.skip < maxSkip {
			s.misses++
		}
		return false
	case s.Limit == 0:
		return false
	case s.skip > 0:
		s.skip--
		return false
	}
	s.looking = true
	s.until = time.Now().Add(s.Limit)
	return true
}

// hit says that there was something to read.
func (s *Spin) hit() {
	if s.looking {
		s.looking, s.misses = false, 0
	}
}
