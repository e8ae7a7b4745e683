//go:build linux && !portable

package link

import (
	"runtime"
	"time"
)

// Spin makes a receive call that reads the connection itself poll for up to Limit
// before it sleeps: a peer on the same machine answers in less time than it takes
// to put a thread to sleep and wake it.
//
// After each wait in which polling has failed, the next 1, 3, 7 and so on up to
// maxSkip waits sleep at once, so useless polling costs almost nothing.
type Spin struct {
	Limit   time.Duration // 0: never poll
	stream  bool          // messages come many at a time; polling pays only for waits for single ones
	looking bool          // polling in the current wait
	until   time.Time     // end of polling
	misses  int           // failures in a row, up to the number that reaches maxSkip
	skip    int           // number of further waits without polling
}

// NewSpin returns a Spin that polls for busyPoll, or never if that is negative.
func NewSpin(busyPoll time.Duration) (s Spin) {
	// With one processor, polling would keep a sender in this process waiting.
	if runtime.GOMAXPROCS(0) > 1 {
		s.Limit = max(busyPoll, 0)
	}
	return s
}

// again reports whether to poll again if there is nothing to read.
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
	case s.Limit == 0 || s.stream:
		return false
	case s.skip > 0:
		s.skip--
		return false
	}
	s.looking = true
	s.until = time.Now().Add(s.Limit)
	return true
}

// hit records that there were bytes to read.
func (s *Spin) hit() {
	if s.looking {
		s.looking, s.misses = false, 0
	}
}
