package recipes

import "time"

const (
	// DefaultTTL is the default of Options.TTL. It is longer than a pair needs for a failover.
	DefaultTTL = 15 * time.Second

	// MinTTL is the minimum of Options.TTL.
	MinTTL = 100 * time.Millisecond

	// renewals is how often a lock is renewed in its time to live, so that one that was late is not
	// the end.
	renewals = 3

	// graceShare is the part of the time to live by which a holder gives up before the server can:
	// clocks do not run at the same rate.
	graceShare = 10

	// goodbye bounds the wait for the deletion of a key that is not needed any more. Without it the
	// key expires.
	goodbye = time.Second

	// MaxShards is the maximum of PoolOptions.Shards: a member sends a message for each of its shards
	// each third of the time to live.
	MaxShards = 1024
)
