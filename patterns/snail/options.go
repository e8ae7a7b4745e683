package snail

import (
	"cmp"
	"time"

	"clustermap/internal/option"
	"clustermap/internal/text"
	"clustermap/sockets"
)

// Policy is the reaction of a Subscriber that has fallen behind.
type Policy uint8

const (
	// PolicyStop, the default, ends the subscriber, as the guide's program does. It
	// disconnects, and every receive call returns the *LagError.
	PolicyStop Policy = iota
	// PolicyReport calls Options.OnLag and delivers the message.
	PolicyReport
	// PolicyResubscribe calls Options.OnLag, if set, disconnects, which drops all queued
	// messages at both ends, and connects again.
	PolicyResubscribe
)

func (p Policy) String() string {
	return text.Of(p, "Policy", "stop", "report", "resubscribe")
}

// MarshalText returns the text of String.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Clocks is the relation of the clocks of publisher and subscriber.
type Clocks uint8

const (
	// ClocksSynchronised, the default, means that the clocks show the same time, for
	// example by NTP or because they are on one machine, and that any difference is
	// small compared to MaxDelay. The delay is the subscriber's clock minus the
	// stamp; it is negative if the publisher's clock is ahead.
	ClocksSynchronised Clocks = iota

	// ClocksUnsynchronised means that the clocks differ by an unknown, nearly constant
	// amount. The base is the smallest difference so far of clock and stamp, and
	// the delay of a message is its difference minus the base. So the delay is too
	// small by the delay of the fastest message: if the subscriber is behind from
	// its first message on, this is not detected until it falls further behind.
	//
	// The base rises by MaxDrift, so that a faster clock does not look like a
	// growing delay. A backlog that grows more slowly is not detected. If the
	// publisher's clock is set back, or the subscriber's forward, by more than
	// MaxDelay, it looks like a delay; in the other direction the base follows at
	// once. ClocksUnsynchronised requires a single publisher.
	ClocksUnsynchronised
)

func (c Clocks) String() string {
	return text.Of(c, "Clocks", "synchronised", "unsynchronised")
}

// MarshalText returns the text of String.
func (c Clocks) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Options configures a Subscriber. Endpoints is required.
type Options struct {
	// Endpoints are the endpoints of the publishers: see sockets.Sub.Connect.
	Endpoints []string

	// Topics are the prefixes to subscribe to. None means all messages.
	Topics []string

	// MaxDelay is the delay above which the subscriber has fallen behind. 0 means
	// DefaultMaxDelay; negative means that delays are not checked.
	MaxDelay time.Duration

	// Sequence enables checks of the sequence numbers that a Publisher with
	// PublisherOptions.Sequence sends. A missing number is a message that was lost
	// because a queue was full or the connection broke. If more than MaxMissed
	// consecutive numbers are missing, the subscriber has fallen behind. Sequence
	// requires a single publisher, and Topics that match all of its messages.
	Sequence  bool
	MaxMissed uint64

	// Policy is the reaction when the subscriber has fallen behind.
	Policy Policy

	// OnLag, if set, is called each time that the subscriber has fallen behind, with
	// PolicyReport and PolicyResubscribe, by the goroutine that receives. It must
	// not use the Subscriber.
	OnLag func(Lag)

	// Pause is the longest wait of PolicyResubscribe before it connects again. The wait
	// is random, and at least half as long. 0 means DefaultPause.
	Pause time.Duration

	// Clocks is the relation of the clocks. MaxDrift, for ClocksUnsynchronised, is how
	// much their difference may change in a second. 0 means DefaultMaxDrift, which
	// allows an error of 100 parts per million for each clock.
	Clocks   Clocks
	MaxDrift time.Duration

	// Now is the clock. The default is time.Now.
	Now func() time.Time

	// Socket configures the SUB socket. Conflate is not allowed: it hides delays.
	Socket sockets.Options
}

// OptionError describes one invalid field of Options. NewSubscriber reports all invalid
// fields at once, joined by errors.Join.
// The packages of this module share the type; its field Package names the one.
type OptionError = option.Error

// withDefaults returns o with its defaults. The error reports all invalid fields.
func (o Options) withDefaults() (Options, error) {
	c := option.Checker{Package: "snail"}
	c.If(len(o.Endpoints) == 0, "Endpoints", "is empty")
	c.If(o.Policy > PolicyResubscribe, "Policy", "is not PolicyStop, PolicyReport or PolicyResubscribe")
	c.If(o.Policy == PolicyReport && o.OnLag == nil, "OnLag", "is not set; PolicyReport requires it")
	c.If(o.Clocks > ClocksUnsynchronised, "Clocks", "is neither ClocksSynchronised nor ClocksUnsynchronised")
	option.Default(&c, "MaxDrift", &o.MaxDrift, DefaultMaxDrift)
	c.If(o.MaxDrift >= time.Second, "MaxDrift", "is one second per second or more")
	option.Default(&c, "Pause", &o.Pause, DefaultPause)
	c.If(len(o.Endpoints) > 1 && o.Sequence, "Sequence", "requires a single publisher")
	c.If(len(o.Endpoints) > 1 && o.Clocks == ClocksUnsynchronised, "Clocks", "is ClocksUnsynchronised, which requires a single publisher")
	c.If(o.MaxDelay < 0 && !o.Sequence, "MaxDelay", "is negative and Sequence is not set: nothing would be checked")
	c.If(o.Socket.Conflate, "Socket.Conflate", "would hide delays")
	o.MaxDelay = cmp.Or(o.MaxDelay, DefaultMaxDelay)
	if len(o.Topics) == 0 {
		o.Topics = []string{""}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, c.Err()
}
