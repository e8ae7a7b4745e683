package chp

import (
	"iter"
	"time"

	"clustermap/internal/kvmsg"
)

// Entry is a key of a map with its value.
type Entry struct {
	Key   []byte
	Value []byte

	// TTL is how long the key has left to live, or 0 if it has no limit. For a
	// key of a [Client] see [Client.GetTTL].
	TTL time.Duration
}

// GetTTL returns how long a key has left to live, or 0 if it has no limit, and
// whether the key is there. A time that is over gives 1ns until the server's
// deletion arrives.
//
// The client counts from the arrival of the update, or of the snapshot, on its own
// monotonic clock, so the result is too high by the time that the message took. A
// server that is not of this package does not say in a snapshot how much time a key
// has left: keys that were set before the client joined have no limit here, and end
// when that server deletes them.
func (c *Client) GetTTL(key string) (ttl time.Duration, ok bool) {
	state := c.state.Load()
	if state == nil {
		return 0, false
	}
	ok = state.View(bytesOf(key), func(r kvmsg.Record) { ttl = state.deadlines.left(r) })
	return ttl, ok
}

// Entries returns every key with its value and time to live, in no order: the
// keys and values of the moment at which the iteration begins, whatever is
// applied meanwhile. The slices of an Entry are lent until the next one and must
// not be changed.
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
			return yield(Entry{Key: r.Key(), Value: r.Value(), TTL: state.deadlines.left(r)})
		})
	}
}
