package snail

import (
	"errors"
	"fmt"
	"time"

	"clustermap/sockets"
)

// Policy says what a Subscriber does when it has fallen behind.
type Policy uint8

const (
	// Stop ends the subscriber, as the guide's program does: it disconnects, and
	// every receive call from then on returns the *LagError. It is the default.
	Stop Policy = iota
	// Report calls Options.OnLag and goes on.
	Report
	// Resubscribe calls Options.OnLag, if set, drops everything that is queued at
	// both ends, and connects anew, so that the next message is a fresh one.
	Resubscribe
)

func (p Policy) String() string {
	switch p {
	case Stop:
		return "stop"
	case Report:
		return "report"
	case Resubscribe:
		return "resubscribe"
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// Clocks says what a Subscriber takes for granted about the clocks of publisher and
// subscriber.
type Clocks uint8

const (
	// Synchronised: both show the same time, for example by NTP, and what they
	// differ by is small beside MaxDelay. The delay is the clock minus the stamp; it
	// is negative if the publisher's clock is ahead. On one machine the clocks are
	// always synchronised. It is the default, and what the guide assumes.
	Synchronised Clocks = iota

	// Unsynchronised: the clocks differ by an unknown amount, which hardly changes.
	// The smallest difference seen so far between clock and stamp is the base, and the
	// delay is what exceeds it. So the delay is never too large but for the error
	// below, and it is too small by the delay of the fastest message: a
	// subscriber that was behind from its first message on is not noticed until it
	// falls further behind.
	//
	// Clocks run at slightly different rates. The base may rise by MaxDrift per
	// second, so that a clock that is faster does not look like a growing delay. A
	// backlog that grows more slowly than that is not noticed either. If the
	// publisher's clock is set back, or the subscriber's forward, by more than MaxDelay,
	// that looks like a delay; if they are set the other way, the base follows
	// at once. It needs a single publisher.
	Unsynchronised
)

func (c Clocks) String() string {
	switch c {
	case Synchronised:
		return "synchronised"
	case Unsynchronised:
		return "unsynchronised"
	}
	return fmt.Sprintf("Clocks(%d)", uint8(c))
}

// Defaults of Options.
const (
	DefaultMaxDelay = time.Second            // the guide's
	DefaultMaxDrift = 200 * time.Microsecond // per second
	DefaultPause    = 100 * time.Millisecond
)

// Options configures a Subscriber. Endpoints is needed.
type Options struct {
	// Endpoints are those of the publishers, as sockets.Sub.Connect takes them.
	Endpoints []string

	// Topics are the prefixes to subscribe to. None means everything.
	Topics []string

	// MaxDelay is the delay up to which a subscriber has not fallen behind. 0 means
	// DefaultMaxDelay; negative means that delays do not matter.
	MaxDelay time.Duration

	// Sequence has the sequence numbers checked that a Publisher with
	// PublisherOptions.Sequence sends. A number that is missing is a message that was
	// lost, since a queue was full or the connection was broken: more than MaxMissed
	// in a row, and the subscriber has fallen behind. It needs a single publisher,
	// and Topics under which all of its messages are.
	Sequence  bool
	MaxMissed uint64

	// Policy is what happens when the subscriber has fallen behind.
	Policy Policy

	// OnLag, if set, is told each time, with the policies Report and Resubscribe, in
	// the goroutine that receives. It must not use the Subscriber.
	OnLag func(Lag)

	// Pause is the longest wait of a Resubscribe before it connects again. The wait is
	// random, from half of it to all of it. 0 means DefaultPause.
	Pause time.Duration

	// Clocks says what is known of the clocks. MaxDrift is for Unsynchronised: how
	// much their difference may grow in a second. 0 means DefaultMaxDrift, which
	// is two clocks that are off by 100 parts in a million each.
	Clocks   Clocks
	MaxDrift time.Duration

	// Now is the clock. Default time.Now.
	Now func() time.Time

	// Socket is for the SUB socket. Conflate is refused: it hides that a
	// subscriber is behind.
	Socket sockets.Options
}

// OptionError is one thing that is wrong with an Options. NewSubscriber returns all
// of them at once, joined (errors.Join).
type OptionError struct {
	Field  string
	Reason string
}

func (e *OptionError) Error() string { return "snail: Options." + e.Field + " " + e.Reason }

// withDefaults returns o with its defaults, or all that is wrong with it.
func (o Options) withDefaults() (Options, error) {
	var faults []error
	check := func(bad bool, field, reason string) {
		if bad {
			faults = append(faults, &OptionError{field, reason})
		}
	}
	check(len(o.Endpoints) == 0, "Endpoints", "is empty")
	check(o.Policy > Resubscribe, "Policy", "is none of Stop, Report, Resubscribe")
	check(o.Policy == Report && o.OnLag == nil, "OnLag", "is not set, and with Policy Report nothing else happens")
	check(o.Clocks > Unsynchronised, "Clocks", "is neither Synchronised nor Unsynchronised")
	check(o.MaxDrift < 0, "MaxDrift", "is negative")
	check(o.MaxDrift >= time.Second, "MaxDrift", "is a second per second or more")
	check(o.Pause < 0, "Pause", "is negative")
	check(len(o.Endpoints) > 1 && o.Sequence, "Sequence", "needs a single publisher")
	check(len(o.Endpoints) > 1 && o.Clocks == Unsynchronised, "Clocks", "are Unsynchronised, and that needs a single publisher")
	check(o.MaxDelay < 0 && !o.Sequence, "MaxDelay", "is negative, and Sequence is not set: nothing would be checked")
	check(o.Socket.Conflate, "Socket.Conflate", "would hide delays")
	if o.MaxDelay == 0 {
		o.MaxDelay = DefaultMaxDelay
	}
	if o.MaxDrift == 0 {
		o.MaxDrift = DefaultMaxDrift
	}
	if o.Pause == 0 {
		o.Pause = DefaultPause
	}
	if len(o.Topics) == 0 {
		o.Topics = []string{""}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, errors.Join(faults...)
}
