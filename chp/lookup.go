package chp

// What readers call. None of it takes a lock; see epoch.go for what keeps the octets
// in place while they look.

// find returns the record of key, or nil. It goes on to the end of its segment.
// Readers may call it: inside an epoch, unless the store is a collected one.
func (s *store) find(hash uint64, key []byte) record {
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
			if r := seg.record(at.offset()); r.hasKey(key) {
				return r
			}
		}
		if v == slotEmpty {
			return nil
		}
	}
}

// get appends the value of key to dst. Readers may call it.
func (s *store) get(key []byte, dst []byte) (value []byte, seq int64, ok bool) {
	hash := hashKey(key)
	c := readers.enter()
	if r := s.find(hash, key); r != nil {
		dst, seq, ok = append(dst, r.valueBehind(len(key))...), r.seq(), true
	}
	leave(c)
	return dst, seq, ok
}

// getCollected is get for a store whose segments are left to the garbage
// collector: there is nothing that an epoch would have to keep away.
func (s *store) getCollected(hash uint64, key []byte, dst []byte) (value []byte, ok bool) {
	r := s.find(hash, key)
	if r == nil {
		return dst, false
	}
	return append(dst, r.valueBehind(len(key))...), true
}

// view calls f with the record of key, and reports whether there is one. f must
// be quick, must not block, and must not keep the record. Readers may call it.
func (s *store) view(key []byte, f func(record)) bool {
	c := readers.enter()
	defer leave(c)
	r := s.find(hashKey(key), key)
	if r == nil {
		return false
	}
	f(r[:r.size():r.size()])
	return true
}

// keyOf looks for the live record whose key has the given hash and whose sequence
// is seq, and appends its key to dst. It reports false if there is none: the record
// has been superseded. Readers may call it.
func (s *store) keyOf(hash uint64, seq int64, dst []byte) (key []byte, ok bool) {
	c := readers.enter()
	defer leave(c)
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
			if r := seg.record(at.offset()); r.seq() == seq && hashKey(r.key()) == hash {
				return append(dst, r.key()...), true
			}
		}
		if v == slotEmpty {
			return dst, false
		}
	}
}

// len returns the number of keys. Readers may call it.
func (s *store) len() int { return int(s.keys.Load()) }
