package snail

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Lag describes how far behind a message is.
type Lag struct {
	Delay  time.Duration // measured as Options.Clocks describes; 0 if Options.MaxDelay is negative
	Missed uint64        // missing messages before it, with Options.Sequence
	Stamp  time.Time     // when it was sent, by the publisher's clock; zero if Options.MaxDelay is negative
}

// ErrLagged matches every *LagError (errors.Is).
var ErrLagged = errors.New("snail: the subscriber has fallen behind")

// LagError is the reason why a Subscriber has stopped.
type LagError struct {
	Lag
	MaxDelay  time.Duration
	MaxMissed uint64
}

func (e *LagError) Error() string {
	if e.MaxDelay >= 0 && e.Delay > e.MaxDelay {
		return fmt.Sprintf("snail: the subscriber is %v behind; at most %v is allowed", e.Delay, e.MaxDelay)
	}
	return fmt.Sprintf("snail: %d messages are missing; at most %d are allowed", e.Missed, e.MaxMissed)
}

// Is reports whether target is ErrLagged.
func (e *LagError) Is(target error) bool { return target == ErrLagged }

// gauge measures the lag of messages.
type gauge struct {
	opts Options

	counting bool   // next is known
	next     uint64 // the expected sequence number

	started time.Time
	hasBase bool          // base is known
	base    time.Duration // smallest clock minus stamp so far, raised by MaxDrift
	baseAt  time.Duration // when base was updated, since started
}

// measure returns the lag of a message that is received now. ok is false if its stamp or
// number is invalid.
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
	offset := now.Sub(lag.Stamp) // of the wall clocks
	if s.Messages == 0 || offset < s.SmallestOffset {
		s.SmallestOffset = offset
	}
	lag.Delay = offset
	if g.opts.Clocks == ClocksUnsynchronised {
		lag.Delay = offset - g.updateBase(offset, now.Sub(g.started))
		if lag.Delay < 0 { // more than 292 years
			lag.Delay = math.MaxInt64
		}
	}
	s.Delay = lag.Delay
	if s.Messages == 0 || lag.Delay > s.LargestDelay {
		s.LargestDelay = lag.Delay
	}
	return lag, true
}

// updateBase updates the base with an offset measured at the given age of the
// subscriber, and returns it.
func (g *gauge) updateBase(offset, age time.Duration) time.Duration {
	if g.hasBase {
		passed := max(age-g.baseAt, 0)
		g.base += time.Duration(passed.Seconds() * float64(g.opts.MaxDrift))
	}
	if !g.hasBase || offset < g.base {
		g.base = offset
	}
	g.hasBase, g.baseAt = true, age
	return g.base
}

// behind reports whether a lag exceeds a limit.
func (g *gauge) behind(lag Lag) bool {
	return g.opts.MaxDelay >= 0 && lag.Delay > g.opts.MaxDelay || lag.Missed > g.opts.MaxMissed
}
