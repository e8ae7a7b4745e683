package timer

import (
	"maps"
	"time"
)

// Wheel keeps the deadlines of keys that have a time to live. It is hierarchical:
// four levels of 256 buckets; a bucket of the first stands for one tick, of the
// next for 256 ticks, and so on. A deadline goes to the first level that reaches
// so far, and moves down a level each time its bucket comes due, so setting one
// and firing one cost the same however many there are.
//
// A key has one deadline at most: to set another one moves it. What has become of
// the key meanwhile the wheel does not know. It gives back the sequence of the
// update that set the deadline, and the store says whether that update still
// stands (KeyOf).
//
// The memory follows the number of deadlines in both directions, in small steps:
// the slab is a list of chunks without holes, and the map is many small ones.
//
// Not safe for concurrent use. No field is a pointer into the slab, so the
// garbage collector does not walk it.
type Wheel struct {
	base   time.Time // tick 0
	now    int64     // the tick being worked on; all before it are done
	chunks [][]timer // the slab; its first timers are the ends of the lists
	size   uint32    // timers in the slab, those ends included
	byHash [wheelMaps]timerMap
	counts [wheelLevels]int // timers in each level
	level  int              // the level of which cascading holds timers
}

// timerMap finds the timers of some of the keys. peak is the most it has held
// since it was made: a Go map never shrinks, so one that has become too big is
// replaced.
type timerMap struct {
	index map[uint64]uint32
	peak  int
}

// timer is an element of a doubly linked ring. The ring of a bucket begins and
// ends at an element which stands for the bucket, so unlinking needs no cases.
type timer struct {
	hash       uint64
	seq        int64
	due        int64 // tick
	next, prev uint32
	level      uint32
}

const (
	wheelTick   = 10 * time.Millisecond
	wheelBits   = 8
	wheelSlots  = 1 << wheelBits
	wheelLevels = 4

	// Two rings beside the buckets: what is moving down from a bucket that has
	// come due, and what is due now. Being out of its bucket, neither can be
	// mixed up with what is added while advance pauses.
	cascading  = wheelLevels * wheelSlots
	expiring   = cascading + 1
	wheelRings = expiring + 1

	chunkBits = 11
	chunkSize = 1 << chunkBits // timers in a chunk: 80 KiB; the rings fit the first one

	wheelMaps = 256
	// keepMap is the size up to which a map is kept however empty it is.
	keepMap = 256
)

// NewWheel returns an empty wheel whose ticks count from now. It is small until
// the first deadline is set.
func NewWheel(now time.Time) *Wheel {
	return &Wheel{base: now}
}

// Len returns the number of deadlines that are set.
func (w *Wheel) Len() int { return int(w.size) - min(int(w.size), wheelRings) }

// at returns a timer of the slab.
func (w *Wheel) at(i uint32) *timer { return &w.chunks[i>>chunkBits][i&(chunkSize-1)] }

// mapOf returns the map that has the timer of a key, if it has one. The top bits
// of the hash are those of the index's tables; any will do.
func (w *Wheel) mapOf(hash uint64) *timerMap { return &w.byHash[hash>>56&(wheelMaps-1)] }

// Add sets the deadline of the key with the given hash, in the place of any it had.
// It fires at the first tick that is not before the deadline. Adding from fire is
// allowed.
func (w *Wheel) Add(hash uint64, seq int64, deadline time.Time) {
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
	t.hash, t.seq = hash, seq
	// Rounded up, and never the current tick, which may have fired already.
	t.due = max(int64((deadline.Sub(w.base)+wheelTick-1)/wheelTick), w.now+1)
	w.place(i)
}

// Remove takes back the deadline of a key, if it has one.
func (w *Wheel) Remove(hash uint64) {
	if i, ok := w.mapOf(hash).index[hash]; ok {
		w.unlink(i)
		w.free(i)
	}
}

// Advance calls fire for deadlines up to now, in the order of their ticks. It
// stops after limit steps, a step being a deadline fired or moved down a level,
// and then returns true: there is more to do.
func (w *Wheel) Advance(now time.Time, limit int, fire func(hash uint64, seq int64)) (more bool) {
	target := int64(now.Sub(w.base) / wheelTick)
	if w.Len() == 0 {
		// Nothing in the buckets or in the two rings: go there in one step.
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

// following returns the next tick at which something may have to be done: the next
// one, or if the lowest levels are empty the next at which a bucket of the first
// level that is not comes due.
func (w *Wheel) following() int64 {
	step := int64(1)
	for l := 0; l < wheelLevels-1 && w.counts[l] == 0; l++ {
		step <<= wheelBits
	}
	return (w.now/step + 1) * step
}

// bucket returns the ring of a level in which a tick falls.
func (w *Wheel) bucket(level int, tick int64) uint32 {
	return uint32(level*wheelSlots) + uint32(tick>>(wheelBits*level))&(wheelSlots-1)
}

// place links a timer into the bucket for its tick, which is not in the past.
//
// The bucket may be the one of its level that is current, one turn of the wheel
// ahead; that one has been emptied for this turn. A deadline beyond the reach of
// the last level goes as far as that reaches, and is placed anew from there.
func (w *Wheel) place(i uint32) {
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

// link puts a timer at the end of a ring.
func (w *Wheel) link(i, ring uint32) {
	last := w.at(ring).prev
	w.at(i).prev, w.at(i).next = last, ring
	w.at(last).next, w.at(ring).prev = i, i
}

// unlink takes a timer out of its ring.
func (w *Wheel) unlink(i uint32) {
	t := w.at(i)
	w.at(t.prev).next, w.at(t.next).prev = t.next, t.prev
	w.counts[t.level]--
}

// splice moves all of ring from to the end of ring to, in one step.
func (w *Wheel) splice(to, from uint32) {
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
func (w *Wheel) extend() uint32 {
	i := w.size
	if int(i>>chunkBits) == len(w.chunks) {
		w.chunks = append(w.chunks, make([]timer, chunkSize))
	}
	w.size++
	return i
}

// free gives an unlinked timer back. The last one of the slab takes its place, so
// that there are no holes, and chunks at the end that have become empty go, but
// for one, so that a few deadlines more or less do not make and drop it each time.
func (w *Wheel) free(i uint32) {
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

// remove takes a key out, and replaces the map if it has become too big: each map
// is a small part of the whole, so that takes little time.
func (m *timerMap) remove(hash uint64) {
	delete(m.index, hash)
	if m.peak <= keepMap || len(m.index) > m.peak/4 {
		return
	}
	smaller := make(map[uint64]uint32, len(m.index))
	maps.Copy(smaller, m.index)
	m.index, m.peak = smaller, len(smaller)
}
