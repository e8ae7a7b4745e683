package chp

import (
	"iter"

	"clustermap/internal/kvmsg"
)

// Lookup returns a copy of a key's entry with PresenceFound. If there is no entry to
// return, the presence says why. [Client.Get] is faster, but does not tell these cases
// apart.
//
// Like Get, Lookup reads the replica, which keeps its last state while the client is not
// ACTIVE (see [Client.State]).
func (c *Client) Lookup(key string) (Entry, Presence) {
	if !c.subtrees.Contains(bytesOf(key)) {
		return Entry{}, PresenceOutside
	}
	now := c.replica.Now()
	if now == nil {
		return Entry{}, PresenceUnsynced
	}
	var e Entry
	if !now.View(bytesOf(key), func(r kvmsg.Record) { e = copyEntry(r, now.Deadlines) }) {
		return Entry{}, PresenceAbsent
	}
	return e, PresenceFound
}

// Range calls f for every key, in no particular order, until f returns false. It is
// [Client.All] for keys and values alone.
func (c *Client) Range(f func(key, value []byte) bool) {
	now := c.replica.Cut()
	if now.Cut == nil {
		return
	}
	defer now.Release()
	now.Records(func(r kvmsg.Record) bool { return f(r.Key(), r.Value()) })
}

// All returns an iterator over all entries, in no particular order. It iterates over the
// state at the moment when the loop begins: updates that are applied meanwhile do not
// show, and do not wait for the loop. Overwritten values keep their memory until the
// loop ends.
//
// Key, Value and Properties are lent for the body of the loop: they are valid until it ends, and must
// not be changed. The body may call all methods of the client.
func (c *Client) All() iter.Seq[Entry] { return c.Prefix("") }

// Prefix is like All for the keys that begin with a prefix, which need not be a subtree.
// It reads all keys of the replica.
func (c *Client) Prefix(prefix string) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		if now := c.replica.Cut(); now.Cut != nil {
			defer now.Release()
			eachEntry(now, prefix, yield)
		}
	}
}

// Sorted is like Prefix in the order of the keys, byte by byte. Before the first entry it
// reads all keys of the replica and sorts those with the prefix, which takes 24 bytes of
// memory for each of them until the loop ends. It does not copy keys or values.
func (c *Client) Sorted(prefix string) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		if now := c.replica.Cut(); now.Cut != nil {
			defer now.Release()
			eachSorted(now, prefix, yield)
		}
	}
}
