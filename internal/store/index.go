package store

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"clustermap/internal/kvmsg"
)

// The index finds the location of a key's record. It consists of a number of tables,
// 256 by default, selected by the top bits of the hash, so that growing one stops the
// writer for a small part of the whole only. A table uses open addressing with linear
// probing: a cache line has eight slots, and most keys are found in the first line.
//
// A slot is one word, so a reader sees an old location or a new one and never a
// mixture:
//
//	bits 48..63  tag: 1, then 15 bits of the hash that have no other use
//	bits  0..47  location
//
// or it is slotEmpty, or slotDead where a key was removed. A key keeps its slot while
// it is in a table, so no reader misses a key that stays. A key that is removed and set
// again may get an earlier slot, which a reader has already passed. The reader then
// reports that the key is absent, which was true at a moment during its search.
const (
	shardBits = 8 // bits of the hash that select a table

	tagBits  = 15
	tagShift = locationBits
	tagMark  = 1 << tagBits

	slotEmpty = 0
	slotDead  = 1 // not the tag of any key, which has tagMark

	slotBytes = 8

	minTable = 8
)

// table has a power of two of slots. At least one is empty, so every search ends.
type table struct {
	slots []atomic.Uint64
}

// index has one writer and any number of readers. The fields that only the writer uses
// are separate from the pointers that every reader loads.
type index struct {
	tables []atomic.Pointer[table]
	shift  uint // 64 minus the bits of a table's number
	counts []shardCount

	rebuilds uint // tables that the writer has replaced
}

type shardCount struct {
	used uint32 // slots with a key
	dead uint32 // slots with slotDead
}

// newIndex returns an index of n tables, a power of two up to MaxShards.
func newIndex(n int) index {
	return index{
		tables: make([]atomic.Pointer[table], n),
		counts: make([]shardCount, n),
		shift:  uint(64 - bits.TrailingZeros(uint(n))),
	}
}

// shard returns the number of the table for a hash.
func (x *index) shard(hash uint64) int {
	// With a single table the shift is 64, and the result 0.
	return int(hash >> x.shift)
}

// From the top of the hash: 8 bits for the shard, 15 bits for the tag. From its low
// end, above the flag bits: the slot at which the search begins.
func tagOf(hash uint64) uint64  { return hash>>(64-shardBits-tagBits)&(tagMark-1) | tagMark }
func homeOf(hash uint64) uint64 { return hash >> 2 }

// SpareBits returns a value whose low 10 bits are bits of the hash that select neither
// the shard, the tag, nor the first slots of a table.
func SpareBits(hash uint64) uint64 { return hash >> (64 - shardBits - tagBits - 10) }

func slotValue(hash uint64, at location) uint64 { return tagOf(hash)<<tagShift | uint64(at) }
func slotLocation(v uint64) location            { return location(v & (1<<locationBits - 1)) }

// insert adds a key that is not in the index. Writer only.
func (x *index) insert(hash uint64, at location, l *log) {
	i := x.shard(hash)
	t, c := x.tables[i].Load(), &x.counts[i]
	if t == nil || int(c.used+c.dead+1) > len(t.slots)/2 {
		t = x.rebuild(i, int(c.used)+1, l)
	}
	mask := uint64(len(t.slots) - 1)
	for pos := homeOf(hash); ; pos++ {
		slot := &t.slots[pos&mask]
		switch slot.Load() {
		case slotDead:
			c.dead--
		case slotEmpty:
		default:
			continue
		}
		c.used++
		slot.Store(slotValue(hash, at))
		return
	}
}

// remove removes the key in slot pos of a shard. Writer only.
func (x *index) remove(i int, pos uint64, l *log) {
	t, c := x.tables[i].Load(), &x.counts[i]
	mask := uint64(len(t.slots) - 1)
	c.used--
	if t.slots[(pos+1)&mask].Load() != slotEmpty {
		c.dead++
		t.slots[pos&mask].Store(slotDead)
	} else {
		// No search continues past this slot, so it can be empty instead of dead,
		// and so can the dead slots directly before it.
		t.slots[pos&mask].Store(slotEmpty)
		for pos--; t.slots[pos&mask].Load() == slotDead; pos-- {
			c.dead--
			t.slots[pos&mask].Store(slotEmpty)
		}
	}
	if len(t.slots) > minTable && int(c.used) < len(t.slots)/8 {
		x.rebuild(i, int(c.used), l)
	}
}

// expect replaces the tables that are too small for n more keys, which are spread evenly:
// so they need not grow several times, each time with all keys hashed again. Writer only.
func (x *index) expect(n int, l *log) {
	for i := range x.counts {
		n += int(x.counts[i].used)
	}
	size := minTable / 2
	for size < 2*(n/len(x.tables)) {
		size *= 2
	}
	if size < minTable {
		return // there may be fewer keys than tables
	}
	for i := range x.tables {
		if t := x.tables[i].Load(); t == nil || len(t.slots) < size {
			x.replace(i, size, l)
		}
	}
}

// rebuild gives a shard a new table for n keys, at most half full.
func (x *index) rebuild(i, n int, l *log) *table {
	size := minTable
	for size < 3*n {
		size *= 2
	}
	return x.replace(i, size, l)
}

// replace gives a shard a new table of a size, without dead slots. Readers may continue in the old one, which does not change. They entered
// before any record is unlinked from the new one, so the grace period waits for them.
func (x *index) replace(i, size int, l *log) *table {
	t := &table{slots: make([]atomic.Uint64, size)}
	hintTable(t.slots, l.bytes)
	mask := uint64(size - 1)
	if old := x.tables[i].Load(); old != nil {
		// A slot does not contain the whole hash, so every key is hashed again,
		// in batches: first prefetch all records of a batch, then hash them.
		var batch [64]uint64
		for next := 0; next < len(old.slots); {
			k := 0
			for ; next < len(old.slots) && k < len(batch); next++ {
				if v := old.slots[next].Load(); v > slotDead {
					at := slotLocation(v)
					prefetchRecord(unsafe.Pointer(&l.segment(at).buf[at.offset()]))
					batch[k] = v
					k++
				}
			}
			for _, v := range batch[:k] {
				at := slotLocation(v)
				pos := homeOf(kvmsg.HashKey(l.segment(at).record(at.offset()).Key()))
				for t.slots[pos&mask].Load() != slotEmpty {
					pos++
				}
				t.slots[pos&mask].Store(v)
			}
		}
	}
	x.counts[i].dead = 0
	x.rebuilds++
	x.tables[i].Store(t)
	return t
}
