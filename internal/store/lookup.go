package store

import (
	"clustermap/internal/kvmsg"
	"clustermap/internal/mutate"
)

// The methods of readers. They take no lock; see rcu.go for why the bytes do not change
// while they read.

// find returns the record of key, or nil. The result extends to the end of its segment.
// Readers may call it between enter and exit, or without them if the store is
// GarbageCollected.
func (s *Map) find(hash uint64, key []byte) kvmsg.Record {
again:
	t := s.tables[s.shard(hash)].Load()
	if t == nil {
		return nil
	}
	slots, tag := t.slots, tagOf(hash)
	for p := homeOf(hash); ; p++ {
		v := slots[p&uint64(len(slots)-1)].Load()
		if v>>tagShift == tag {
			at := slotLocation(v)
			seg := s.log.segment(at)
			if seg == nil {
				goto again
			}
			if r := seg.record(at.offset()); r.HasKey(key) {
				return r
			}
		}
		if v == slotEmpty {
			return nil
		}
	}
}

// Get appends the value of key to dst. Readers may call it.
func (s *Map) Get(key []byte, dst []byte) (value []byte, seq int64, ok bool) {
	hash := kvmsg.HashKey(key)
	c := readers.enter()
	if r := s.find(hash, key); r != nil {
		dst, seq, ok = append(dst, r.ValueBehind(len(key))...), r.Seq(), true
	}
	exit(c)
	return dst, seq, ok
}

// GetGarbageCollected is Get for a store with Options.GarbageCollected, which needs no
// grace period.
//
// It has the loop of find itself. A get of a large map waits for memory twice, and the
// processor begins the next one meanwhile if few enough instructions lie between: with a
// call of find and of HasKey, a get of a million keys takes 1.5 times as long.
func (s *Map) GetGarbageCollected(hash uint64, key []byte, dst []byte) (value []byte, ok bool) {
	if s.pending.mayHave(hash) {
		if r := s.findPending(hash, key); r != nil {
			return append(dst, r.ValueBehind(len(key))...), true
		}
	}
again:
	t := s.tables[s.shard(hash)].Load()
	if t == nil {
		return dst, false
	}
	slots, tag := t.slots, tagOf(hash)
	for p := homeOf(hash); ; p++ {
		v := slots[p&uint64(len(slots)-1)].Load()
		if v>>tagShift == tag {
			at := slotLocation(v)
			seg := s.log.segment(at)
			if seg == nil {
				goto again
			}
			if value, same := seg.record(at.offset()).ValueOf(key); same {
				return append(dst, value...), true
			}
		}
		if v == slotEmpty {
			return dst, false
		}
	}
}

// View calls f with the record of key, and reports whether the key exists. f must be
// quick, must not block, and must not keep the record. Readers may call it.
func (s *Map) View(key []byte, f func(kvmsg.Record)) bool {
	c := readers.enter()
	defer exit(c)
	r := s.find(kvmsg.HashKey(key), key)
	if r == nil {
		return false
	}
	f(r[:r.Size():r.Size()])
	return true
}

// KeyOf finds the live record whose key has the given hash and whose sequence is seq,
// and appends its key to dst. It returns false if the record was superseded. Readers
// may call it.
func (s *Map) KeyOf(hash uint64, seq int64, dst []byte) (key []byte, ok bool) {
	c := readers.enter()
	defer exit(c)
again:
	t := s.tables[s.shard(hash)].Load()
	if t == nil {
		return dst, false
	}
	tag, mask := tagOf(hash), uint64(len(t.slots)-1)
	for p := homeOf(hash); ; p++ {
		v := t.slots[p&mask].Load()
		if v>>tagShift == tag {
			at := slotLocation(v)
			seg := s.log.segment(at)
			if seg == nil {
				goto again
			}
			if r := seg.record(at.offset()); (r.Seq() == seq || mutate.ExpireSuperseded) && kvmsg.HashKey(r.Key()) == hash {
				return append(dst, r.Key()...), true
			}
		}
		if v == slotEmpty {
			return dst, false
		}
	}
}

// Len returns the number of keys. Readers may call it.
func (s *Map) Len() int { return int(s.keys.Load()) }
