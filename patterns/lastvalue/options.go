package lastvalue

import (
	"cmp"
	"time"

	"clustermap/internal/option"
	"clustermap/sockets"
)

// Options configures a Cache. The zero value works.
type Options struct {
	// MaxTopics bounds the topics in the cache. When it is exceeded, the least
	// recently updated topic is removed. 0 means DefaultMaxTopics.
	MaxTopics int

	// MaxBytes bounds the bytes in the cache: the messages with all their frames,
	// each topic twice more, and some 120 bytes a topic. When it is exceeded,
	// topics are removed as with MaxTopics. A larger message is forwarded but not
	// kept, and its topic has no last value. The process needs up to twice as much
	// memory, since the memory of overwritten messages is freed later. 0 means
	// DefaultMaxBytes.
	MaxBytes int

	// Expiry is the time without an update after which a topic is removed. 0 means
	// that topics do not expire.
	Expiry time.Duration

	// Publisher configures the SUB socket for the publishers. Conflate and
	// InvertMatching are not allowed.
	Publisher sockets.Options

	// Subscribers configures the XPUB socket for the subscribers.
	//
	// A subscriber whose queue exceeds SendHWM messages or SendHWMBytes bytes is
	// disconnected. Here a SendHWM of 0 means no limit on messages, because there
	// may be many small last values. The cache sets FullPolicy and the options that
	// begin with XPub; PolicyBlock, InvertMatching and WaitSubscriber are not allowed.
	Subscribers sockets.Options
}

// OptionError describes one invalid field of Options. New reports all invalid fields at
// once, joined by errors.Join.
// The packages of this module share the type; its field Package names the one.
type OptionError = option.Error

// withDefaults returns o with its defaults. The error reports all invalid fields.
func (o Options) withDefaults() (Options, error) {
	c := option.Checker{Package: "lastvalue"}
	option.Default(&c, "MaxTopics", &o.MaxTopics, DefaultMaxTopics)
	c.If(o.MaxTopics > maxEntries, "MaxTopics", "is above 2147483646")
	option.Default(&c, "MaxBytes", &o.MaxBytes, DefaultMaxBytes)
	option.Default(&c, "Expiry", &o.Expiry, 0)
	c.If(o.Publisher.Conflate, "Publisher.Conflate", "would lose last values")
	c.If(o.Publisher.InvertMatching, "Publisher.InvertMatching", "is not supported")
	c.If(o.Subscribers.InvertMatching, "Subscribers.InvertMatching", "is not supported")
	c.If(o.Subscribers.WaitSubscriber, "Subscribers.WaitSubscriber", "is not supported")
	c.If(o.Subscribers.FullPolicy == sockets.PolicyBlock, "Subscribers.FullPolicy", "is PolicyBlock: one slow subscriber would stop all others")
	s := &o.Subscribers
	s.SendHWM = cmp.Or(s.SendHWM, sockets.Unlimited)
	s.FullPolicy = sockets.PolicyDisconnect
	s.XPubManual, s.XPubManualLastValue = true, false
	return o, c.Err()
}
