package sockets

import "time"

// maxHeartbeatTTL is the most that a PING can carry, in tenths of a second.
const maxHeartbeatTTL = (1<<16)*pingUnit - time.Millisecond

// checkHeartbeats checks the options of heartbeats and fills in their defaults.
func (o *Options) checkHeartbeats(bad func(field, format string, args ...any)) {
	if o.HeartbeatInterval < 0 {
		bad("HeartbeatInterval", "must not be negative")
	}
	if o.HeartbeatTimeout < 0 {
		bad("HeartbeatTimeout", "must not be negative")
	}
	if o.HeartbeatTTL < 0 || o.HeartbeatTTL > maxHeartbeatTTL {
		bad("HeartbeatTTL", "is %v; possible are 0 to %v", o.HeartbeatTTL, maxHeartbeatTTL)
	}
	if o.HeartbeatTimeout == 0 {
		o.HeartbeatTimeout = o.HeartbeatInterval
	}
}
