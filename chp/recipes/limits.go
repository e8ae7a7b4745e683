package recipes

import "time"

const (
	// DefaultTTL is the default of Options.TTL. It is longer than a pair needs for a failover.
	DefaultTTL = 15 * time.Second

	// MinTTL is the minimum of Options.TTL.
	MinTTL = 100 * time.Millisecond

	// goodbye bounds the wait for the end of a lease that is not needed any more. Without it the
	// lease ends at its time.
	goodbye = time.Second

	// MaxShards is the maximum number of shards of a pool: whenever a member comes or goes, all compute
	// who has which.
	MaxShards = 1024
)
