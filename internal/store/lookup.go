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
func (s *Map) GetGarbageCollected(hash uint64, key []byte, dst []byte) (value []byte, ok bool) {
	var r kvmsg.Record
	if s.pending.mayHave(hash) {
		r = s.findPending(hash, key)
	}
	if r == nil {
		r = s.find(hash, key)
	}
	if r == nil {
		return dst, false
	}
	return append(dst, r.ValueBehind(len(key))...), true
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
