package chp

import (
	"iter"

	"clustermap/internal/kvmsg"
)

// Lookup returns a copy of a key's entry with PresenceFound, or PresenceAbsent: a server
// has all keys. [Server.Get] is faster.
func (s *Server) Lookup(key string) (Entry, Presence) {
	now := s.sequencer.Current()
	var e Entry
	if !now.Store.View(bytesOf(key), func(r kvmsg.Record) { e = copyEntry(r, &now.Deadlines) }) {
		return Entry{}, PresenceAbsent
	}
	return e, PresenceFound
}

// Range calls f for every key, in no particular order, until f returns false. It is
// [Server.All] for keys and values alone.
func (s *Server) Range(f func(key, value []byte) bool) {
	now := s.sequencer.Cut()
	defer now.Release()
	now.Records(func(r kvmsg.Record) bool { return f(r.Key(), r.Value()) })
}

// All returns an iterator over all entries, in no particular order. It iterates over the
// map at the moment when the loop begins: updates that are applied meanwhile do not show,
// and do not wait for the loop. Overwritten values keep their memory until the loop ends.
// Like Get, it has what is published.
//
// Key, Value and Properties are lent for the body of the loop: they are valid until it ends, and must
// not be changed. The body may call all methods of the server.
func (s *Server) All() iter.Seq[Entry] { return s.Prefix("") }

// Prefix is like All for the keys that begin with a prefix, which need not be a subtree.
// It reads all keys of the map.
func (s *Server) Prefix(prefix string) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		now := s.sequencer.Cut()
		defer now.Release()
		eachEntry(now, prefix, yield)
	}
}

// Sorted is like Prefix in the order of the keys, byte by byte. Before the first entry it
// reads all keys of the map and sorts those with the prefix, which takes 24 bytes of
// memory for each of them until the loop ends. It does not copy keys or values.
func (s *Server) Sorted(prefix string) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		now := s.sequencer.Cut()
		defer now.Release()
		eachSorted(now, prefix, yield)
	}
}
