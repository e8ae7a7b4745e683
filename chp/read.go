package chp

import (
	"bytes"
	"iter"
	"slices"
	"strings"

	"clustermap/chp/internal/live"
	"clustermap/chp/internal/subtree"
	"clustermap/internal/kvmsg"
)

// reader has the methods of [Client] and [Server] that read the map.
type reader struct {
	live     live.Map
	subtrees subtree.Set // that live has
}

// Sequence returns the sequence of the last update that a client has applied, or of the
// snapshot if no update has followed it; at a server, of the last published update. That of a
// client can decrease when it changes to another server.
func (m *reader) Sequence() int64 { return m.live.Sequence() }

// Len returns the number of keys.
func (m *reader) Len() int {
	if now := m.live.Now(); now != nil {
		return now.Store.Len()
	}
	return 0
}

// Get returns a copy of the value of key, and whether the key exists. It takes no lock.
func (m *reader) Get(key string) ([]byte, bool) { return m.AppendGet(nil, key) }

// AppendGet appends the value of key to dst and reports whether the key exists. It
// takes no lock, and allocates only to grow dst.
func (m *reader) AppendGet(dst []byte, key string) ([]byte, bool) {
	now := m.live.Now()
	if now == nil {
		return dst, false
	}
	value, _, ok := now.Store.Get(bytesOf(key), dst)
	return value, ok
}

// has reports whether a key exists.
func (m *reader) has(key []byte) bool {
	now := m.live.Now()
	return now != nil && now.Store.View(key, func(kvmsg.Record) {})
}

// Lookup returns a copy of a key's entry with PresenceFound. If there is no entry to
// return, the presence says why: at a server, which has all keys, it is PresenceAbsent. Get is
// faster, but does not tell these cases apart.
//
// Like Get, Lookup of a client reads the replica, which keeps its last state while the client
// is not ACTIVE (see [Client.State]).
func (m *reader) Lookup(key string) (Entry, Presence) {
	if !m.subtrees.Contains(bytesOf(key)) {
		return Entry{}, PresenceOutside
	}
	now := m.live.Now()
	if now == nil {
		return Entry{}, PresenceUnsynced
	}
	var e Entry
	if !now.Store.View(bytesOf(key), func(r kvmsg.Record) { e = copyEntry(r, &now.Deadlines) }) {
		return Entry{}, PresenceAbsent
	}
	return e, PresenceFound
}

// Range calls f for every key, in no particular order, until f returns false. It is All for
// keys and values alone. It does not have the keys of leases: see [Lease.ID].
func (m *reader) Range(f func(key, value []byte) bool) {
	now := m.live.Cut()
	if now.Cut == nil {
		return
	}
	defer now.Release()
	now.Records(func(r kvmsg.Record) bool { return kvmsg.IsHidden(r.Key()) || f(r.Key(), r.Value()) })
}

// All returns an iterator over all entries, in no particular order. It iterates over the
// state at the moment when the loop begins: updates that are applied meanwhile do not
// show, and do not wait for the loop. Overwritten values keep their memory until the
// loop ends. Like Get, it has what is published.
//
// Key, Value and Properties are lent for the body of the loop: they are valid until it ends, and must
// not be changed. The body may call all methods of the client or the server.
func (m *reader) All() iter.Seq[Entry] { return m.Prefix("") }

// Prefix is like All for the keys that begin with a prefix, which need not be a subtree.
// It reads all keys of the map.
func (m *reader) Prefix(prefix string) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		now := m.live.Cut()
		if now.Cut == nil {
			return
		}
		defer now.Release()
		now.Records(func(r kvmsg.Record) bool {
			return !shows(prefix, r.Key()) || yield(entryOf(r, now.Deadlines))
		})
	}
}

// Sorted is like Prefix in the order of the keys, byte by byte. Before the first entry it
// reads all keys of the map and sorts those with the prefix, which takes 24 bytes of
// memory for each of them until the loop ends. It does not copy keys or values.
func (m *reader) Sorted(prefix string) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		now := m.live.Cut()
		if now.Cut == nil {
			return
		}
		defer now.Release()
		var found []kvmsg.Record
		now.Records(func(r kvmsg.Record) bool {
			if shows(prefix, r.Key()) {
				found = append(found, r)
			}
			return true
		})
		slices.SortFunc(found, func(a, b kvmsg.Record) int { return bytes.Compare(a.Key(), b.Key()) })
		for _, r := range found {
			if !yield(entryOf(r, now.Deadlines)) {
				return
			}
		}
	}
}

// shows reports whether a key begins with a prefix, and, if it is one of the map's own, with one of those.
func shows(prefix string, key []byte) bool {
	return hasPrefix(key, prefix) && (!kvmsg.IsHidden(key) || strings.HasPrefix(prefix, kvmsg.LeasePrefix))
}

func hasPrefix(key []byte, prefix string) bool {
	return len(key) >= len(prefix) && string(key[:len(prefix)]) == prefix
}
