package lastvalue

import (
	"errors"
	"time"

	"clustermap/sockets"
)

// Defaults of Options.
const (
	DefaultMaxTopics = 1 << 20   // topics
	DefaultMaxBytes  = 256 << 20 // bytes
)

// Options configures a Cache. The zero value works.
type Options struct {
	// MaxTopics bounds the topics whose last message is kept. When one more
	// arrives, the topic that has gone without an update for longest is forgotten.
	// 0 means DefaultMaxTopics.
	MaxTopics int

	// MaxBytes bounds the bytes that are kept: the messages with all their frames,
	// each topic twice more, and some 120 bytes a topic. Beyond it, topics
	// are forgotten as with MaxTopics. A message that alone is larger is
	// forwarded and not kept; its topic has no last value then. The process needs
	// up to twice as much memory, since overwritten messages keep theirs for a
	// while. 0 means DefaultMaxBytes.
	MaxBytes int

	// Expiry is how long a message is kept. A topic that is not updated for so
	// long is forgotten. 0 means that messages do not expire.
	Expiry time.Duration

	// Publisher is for the SUB socket that the publishers are connected to. Conflate
	// and InvertMatching are refused.
	Publisher sockets.Options

	// Subscribers is for the XPUB socket that subscribers connect to.
	//
	// A subscriber with more queued than SendHWM messages or SendHWMBytes bytes
	// allow is disconnected. Here a SendHWM of 0 means no bound on the number of
	// messages: last values may be many and small. FullPolicy, and the options that
	// begin with XPub, are the cache's own; Block, InvertMatching and
	// WaitSubscriber are refused.
	Subscribers sockets.Options
}

// OptionError is one thing that is wrong with an Options. New returns all of
// them at once, joined (errors.Join).
type OptionError struct {
	Field  string
	Reason string
}

func (e *OptionError) Error() string { return "lastvalue: Options." + e.Field + " " + e.Reason }

// withDefaults returns o with its defaults, or all that is wrong with it.
func (o Options) withDefaults() (Options, error) {
	var faults []error
	check := func(bad bool, field, reason string) {
		if bad {
			faults = append(faults, &OptionError{field, reason})
		}
	}
	check(o.MaxTopics < 0, "MaxTopics", "is negative")
	check(o.MaxTopics > maxEntries, "MaxTopics", "is above two thousand million")
	check(o.MaxBytes < 0, "MaxBytes", "is negative")
	check(o.Expiry < 0, "Expiry", "is negative")
	check(o.Publisher.Conflate, "Publisher.Conflate", "would lose last values")
	check(o.Publisher.InvertMatching, "Publisher.InvertMatching", "is not supported")
	check(o.Subscribers.InvertMatching, "Subscribers.InvertMatching", "is not supported")
	check(o.Subscribers.WaitSubscriber, "Subscribers.WaitSubscriber", "is not supported")
	check(o.Subscribers.FullPolicy == sockets.Block, "Subscribers.FullPolicy", "is Block: one slow subscriber would stop all others")
	if o.MaxTopics == 0 {
		o.MaxTopics = DefaultMaxTopics
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	s := &o.Subscribers
	if s.SendHWM == 0 {
		s.SendHWM = -1
	}
	s.FullPolicy = sockets.Disconnect
	s.XPubManual, s.XPubManualLastValue = true, false
	return o, errors.Join(faults...)
}
