package sockets

import "time"

// maxHeartbeatTTL is the longest TTL that a PING can carry, in whole tenths of
// a second after rounding down.
const maxHeartbeatTTL = (1<<16)*pingUnit - time.Millisecond

// checkHeartbeats validates the heartbeat options and fills in their defaults.
func (o *Options) checkHeartbeats(bad func(field, format string, args ...any)) {
	if o.HeartbeatInterval < 0 {
		bad("HeartbeatInterval", "must not be negative")
	}
	if o.HeartbeatTimeout < 0 {
		bad("HeartbeatTimeout", "must not be negative")
	}
	if o.HeartbeatTTL < 0 || o.HeartbeatTTL > maxHeartbeatTTL {
		bad("HeartbeatTTL", "%v is not between 0 and %v", o.HeartbeatTTL, maxHeartbeatTTL)
	}
	if o.HeartbeatTimeout == 0 {
		o.HeartbeatTimeout = o.HeartbeatInterval
	}
}
