package snail

import (
	"errors"
	"fmt"
	"time"
)

// Lag is how far behind a message is.
type Lag struct {
	Delay  time.Duration // its age, as Options.Clocks says; 0 if Options.MaxDelay is negative
	Missed uint64        // messages that are missing in front of it, with Options.Sequence
	Stamp  time.Time     // when it was sent, by the publisher's clock
}

// ErrLagged is what a *LagError is, for errors.Is.
var ErrLagged = errors.New("snail: the subscriber has fallen behind")

// LagError is why a Subscriber has stopped.
type LagError struct {
	Lag
	MaxDelay  time.Duration
	MaxMissed uint64
}

func (e *LagError) Error() string {
	if e.MaxDelay >= 0 && e.Delay > e.MaxDelay {
		return fmt.Sprintf("snail: the subscriber is %v behind; at most %v is allowed", e.Delay, e.MaxDelay)
	}
	return fmt.Sprintf("snail: %d messages are missing; at most %d may be", e.Missed, e.MaxMissed)
}

// Is makes errors.Is(err, ErrLagged) true.
func (e *LagError) Is(target error) bool { return target == ErrLagged }

// gauge measures how far behind messages are.
type gauge struct {
	opts Options

	counting bool   // next is known
	next     uint64 // the sequence number that is expected

	started time.Time
	based   bool          // base is known
	base    time.Duration // smallest clock minus stamp so far, raised by MaxDrift
	baseAt  time.Duration // when that was, since started
}

// measure returns how far behind a message is that is taken now, and whether its stamp
// and its number can be read.
func (g *gauge) measure(number, stamp []byte, now time.Time, s *Stats) (lag Lag, ok bool) {
	if g.opts.MaxDelay >= 0 {
		if lag.Stamp, ok = ParseStamp(stamp); !ok {
			return lag, false
		}
	}
	var n uint64
	if g.opts.Sequence {
		if n, ok = parseNumber(number); !ok {
			return lag, false
		}
		switch {
		case !g.counting, n == g.next:
		case n > g.next:
			lag.Missed = n - g.next
			s.Missed += lag.Missed
		default:
			s.Restarts++
		}
		g.counting, g.next = true, n+1
	}
	if g.opts.MaxDelay < 0 {
		return lag, true
	}
	apart := now.Sub(lag.Stamp) // the wall clocks
	if s.Messages == 0 || apart < s.SmallestOffset {
		s.SmallestOffset = apart
	}
	lag.Delay = apart
	if g.opts.Clocks == Unsynchronised {
		lag.Delay = apart - g.raise(apart, now.Sub(g.started))
	}
	s.Delay = lag.Delay
	if s.Messages == 0 || lag.Delay > s.LargestDelay {
		s.LargestDelay = lag.Delay
	}
	return lag, true
}

// raise moves the base to an age of the subscriber, at which the clock and a stamp are
// so much apart, and returns it.
func (g *gauge) raise(apart, age time.Duration) time.Duration {
	if g.based {
		passed := max(age-g.baseAt, 0)
		g.base += time.Duration(passed.Seconds() * float64(g.opts.MaxDrift))
	}
	if !g.based || apart < g.base {
		g.base = apart
	}
	g.based, g.baseAt = true, age
	return g.base
}

// behind says whether that is too far.
func (g *gauge) behind(lag Lag) bool {
	return g.opts.MaxDelay >= 0 && lag.Delay > g.opts.MaxDelay || lag.Missed > g.opts.MaxMissed
}
