package timer

import (
	"maps"
	"time"
)

// wheel holds the deadlines of keys with a time to live. It is hierarchical: it has
// four levels of 256 buckets; a bucket of the first level is one tick, of the next 256
// ticks, and so on. A deadline is in the first level that reaches it, and moves down a
// level each time its bucket is due. So setting and firing a deadline cost the same
// however many there are.
//
// A key has at most one deadline: setting another one replaces it. The wheel does not
// know later updates of the key. It returns the sequence of the update that set the
// deadline, and the store decides whether that update is still the newest one (KeyOf).
//
// The memory grows and shrinks with the number of deadlines, in small steps: the slab
// is a list of chunks without holes, and the map is divided into many small ones.
//
// Not safe for concurrent use. No field is a pointer into the slab, so the garbage
// collector does not scan it.
type wheel struct {
	now    int64     // the current tick; all before it are done
	chunks [][]timer // the slab; its first timers are the list heads
	size   uint32    // timers in the slab, including the list heads
	byHash [wheelMaps]timerMap
	counts [wheelLevels]int // timers in each level
	level  int              // the level of the timers in cascading
}

// timerMap maps some of the keys to their timers. peak is its greatest size since it
// was made: a Go map never shrinks, so one that has become too large is replaced.
type timerMap struct {
	index map[uint64]uint32
	peak  int
}

// timer is an element of a doubly linked ring. The ring of a bucket contains a list
// head, so that linking and unlinking need no special cases.
type timer struct {
	hash       uint64
	seq        int64
	deadline   time.Duration
	due        int64 // tick
	next, prev uint32
	level      uint32
}

const (
	wheelBits   = 8
	wheelSlots  = 1 << wheelBits
	wheelLevels = 4

	// Two rings beside the buckets: timers that move down from a bucket that is due,
	// and timers that are due now. They are separate from the buckets because timers
	// can be added between two calls of Advance.
	cascading  = wheelLevels * wheelSlots
	expiring   = cascading + 1
	wheelRings = expiring + 1

	chunkBits = 11
	chunkSize = 1 << chunkBits // timers in a chunk: 96 KiB; the rings fit the first one
)

// len returns the number of deadlines.
func (w *wheel) len() int { return int(w.size) - min(int(w.size), wheelRings) }

// at returns a timer of the slab.
func (w *wheel) at(i uint32) *timer { return &w.chunks[i>>chunkBits][i&(chunkSize-1)] }

// mapOf returns the map for the timer of a key.
func (w *wheel) mapOf(hash uint64) *timerMap { return &w.byHash[hash>>56&(wheelMaps-1)] }

// find returns the deadline of a key, or nil. It is valid until the next change of w.
func (w *wheel) find(hash uint64) *timer {
	if i, ok := w.mapOf(hash).index[hash]; ok {
		return w.at(i)
	}
	return nil
}

// add sets the deadline of the key with the given hash, and replaces an earlier one. It
// fires at the first tick that is not before the deadline. now must not be in the future.
// fire may call add.
func (w *wheel) add(hash uint64, seq int64, deadline, now time.Duration) {
	if w.len() == 0 {
		w.now, w.level = max(w.now, int64(now/wheelTick)), 0
	}
	if w.size == 0 {
		for w.size < wheelRings {
			i := w.extend()
			w.at(i).next, w.at(i).prev = i, i
		}
	}
	m := w.mapOf(hash)
	i, known := m.index[hash]
	if known {
		w.unlink(i)
	} else {
		i = w.extend()
		m.set(hash, i)
	}
	t := w.at(i)
	t.hash, t.seq, t.deadline = hash, seq, deadline
	// Rounded up, and never the current tick, which may have fired already.
	t.due = max(int64((deadline+wheelTick-1)/wheelTick), w.now+1)
	w.place(i)
}

// remove removes the deadline of a key, if it has one.
func (w *wheel) remove(hash uint64) {
	if i, ok := w.mapOf(hash).index[hash]; ok {
		w.unlink(i)
		w.free(i)
	}
}

// advance calls fire for the deadlines up to now, in the order of their ticks. It stops
// after limit steps, a step being a deadline fired or moved down a level, and then
// returns true.
func (w *wheel) advance(now time.Duration, limit int, fire func(hash uint64, seq int64)) (more bool) {
	target := int64(now / wheelTick)
	if w.len() == 0 {
		// The buckets and the two rings are empty: advance in one step.
		w.now, w.level = max(w.now, target), 0
		return false
	}
	for {
		for ; w.level > 0; w.level-- {
			bucket := w.bucket(w.level, w.now)
			w.splice(cascading, bucket)
			for i := w.at(cascading).next; i != cascading; i = w.at(cascading).next {
				if limit--; limit < 0 {
					return true
				}
				w.unlink(i)
				w.place(i)
			}
		}
		w.splice(expiring, w.bucket(0, w.now))
		for i := w.at(expiring).next; i != expiring; i = w.at(expiring).next {
			if limit--; limit < 0 {
				return true
			}
			t := *w.at(i)
			w.unlink(i)
			w.free(i)
			fire(t.hash, t.seq)
		}
		if w.now >= target {
			return false
		}
		w.now = min(w.following(), target)
		for w.level = 0; w.level < wheelLevels-1 && w.now&(1<<(wheelBits*(w.level+1))-1) == 0; {
			w.level++
		}
	}
}

// following returns the next tick at which there may be work: the next one or, if the
// lowest levels are empty, the next at which a bucket of the first level that is not
// empty is due.
func (w *wheel) following() int64 {
	step := int64(1)
	for l := 0; l < wheelLevels-1 && w.counts[l] == 0; l++ {
		step <<= wheelBits
	}
	return (w.now/step + 1) * step
}

// bucket returns the ring of a level for a tick.
func (w *wheel) bucket(level int, tick int64) uint32 {
	return uint32(level*wheelSlots) + uint32(tick>>(wheelBits*level))&(wheelSlots-1)
}

// place links a timer into the bucket for its tick, which is not in the past.
//
// That may be the current bucket of its level, one turn of the wheel ahead; it has been
// emptied for this turn. A deadline beyond the last level goes as far as that reaches
// and is placed again from there.
func (w *wheel) place(i uint32) {
	t := w.at(i)
	ahead, level := t.due-w.now, 0
	for level < wheelLevels-1 && ahead >= 1<<(wheelBits*(level+1)) {
		level++
	}
	tick := min(t.due, w.now+1<<(wheelBits*wheelLevels)-1)
	t.level = uint32(level)
	w.counts[level]++
	w.link(i, w.bucket(level, tick))
}

// link adds a timer at the end of a ring.
func (w *wheel) link(i, ring uint32) {
	last := w.at(ring).prev
	w.at(i).prev, w.at(i).next = last, ring
	w.at(last).next, w.at(ring).prev = i, i
}

// unlink removes a timer from its ring.
func (w *wheel) unlink(i uint32) {
	t := w.at(i)
	w.at(t.prev).next, w.at(t.next).prev = t.next, t.prev
	w.counts[t.level]--
}

// splice moves all timers of the ring from to the end of the ring to, in one step.
func (w *wheel) splice(to, from uint32) {
	first, last := w.at(from).next, w.at(from).prev
	if first == from {
		return
	}
	w.at(from).next, w.at(from).prev = from, from
	end := w.at(to).prev
	w.at(end).next, w.at(first).prev = first, end
	w.at(last).next, w.at(to).prev = to, last
}

// extend adds a timer to the slab.
func (w *wheel) extend() uint32 {
	i := w.size
	if int(i>>chunkBits) == len(w.chunks) {
		w.chunks = append(w.chunks, make([]timer, chunkSize))
	}
	w.size++
	return i
}

// free removes an unlinked timer. The last one of the slab takes its place, so that
// there are no holes. It drops empty chunks at the end, except one, so that a few
// deadlines more or fewer do not allocate and drop a chunk each time.
func (w *wheel) free(i uint32) {
	w.mapOf(w.at(i).hash).remove(w.at(i).hash)
	w.size--
	if last := w.size; i != last {
		t := w.at(i)
		*t = *w.at(last)
		w.at(t.prev).next, w.at(t.next).prev = i, i
		w.mapOf(t.hash).index[t.hash] = i
	}
	if spare := int(w.size+chunkSize-1)>>chunkBits + 1; len(w.chunks) > spare {
		w.chunks[spare] = nil
		w.chunks = w.chunks[:spare]
	}
}

// set adds a key that is not in the wheel.
func (m *timerMap) set(hash uint64, i uint32) {
	if m.index == nil {
		m.index = make(map[uint64]uint32)
	}
	m.index[hash] = i
	m.peak = max(m.peak, len(m.index))
}

// remove removes a key, and replaces the map if it has become too large. Each map is a
// small part of the whole, so that takes little time.
func (m *timerMap) remove(hash uint64) {
	delete(m.index, hash)
	if m.peak <= keepMap || len(m.index) > m.peak/4 {
		return
	}
	smaller := make(map[uint64]uint32, len(m.index))
	maps.Copy(smaller, m.index)
	m.index, m.peak = smaller, len(smaller)
}
