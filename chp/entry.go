package chp

import (
	"iter"
	"time"

	"clustermap/internal/kvmsg"
)

// Entry is a key of a map with its value and time to live.
type Entry struct {
	Key   []byte
	Value []byte

	// TTL is the remaining time to live, or 0 if the key does not expire. For a key of
	// a [Client], see [Client.GetTTL].
	TTL time.Duration
}

// GetTTL returns the remaining time to live of a key, or 0 if it does not expire, and
// whether the key exists. An expired key has 1ns until the server's deletion arrives.
//
// The client measures from the arrival of the update, or of the snapshot, with its own
// monotonic clock, so the result is too high by the time that the message was in
// transit. Servers of other implementations do not put the remaining time into
// snapshots: keys that were set before the client joined have no time to live here, and
// disappear when the server deletes them.
func (c *Client) GetTTL(key string) (ttl time.Duration, ok bool) {
	state := c.state.Load()
	if state == nil {
		return 0, false
	}
	ok = state.View(bytesOf(key), func(r kvmsg.Record) { ttl = state.deadlines.remaining(r) })
	return ttl, ok
}

// Entries returns an iterator over all keys with their values and times to live, in no
// particular order. It iterates over a consistent view, of the moment at which the
// iteration begins. The slices of an Entry are valid only until the next one; the
// caller must not change them.
func (c *Client) Entries() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		c.mu.Lock()
		state := c.state.Load()
		if state == nil {
			c.mu.Unlock()
			return
		}
		now := state.Cut()
		c.mu.Unlock()
		defer now.Release()
		now.Records(func(r kvmsg.Record) bool {
			return yield(Entry{Key: r.Key(), Value: r.Value(), TTL: state.deadlines.remaining(r)})
		})
	}
}
