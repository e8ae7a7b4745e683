package store

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"clustermap/internal/kvmsg"
)

// The index finds the location of a key's record. It is a number of tables, 256
// if nothing else is said, chosen by the top bits of the hash, so that growing one
// stops the writer for a small part of the whole only. A table is open addressing with linear probing: eight slots a
// cache line, and most keys are found in the first line.
//
// A slot is one word, so a reader sees an old location or a new one and never a
// mixture:
//
//	bits 48..63  tag: 1, then 15 bits of the hash that serve nothing else
//	bits  0..47  location
//
// or it is slotEmpty, or slotDead where a key was removed. A key keeps its slot
// for as long as it is in a table, so no reader misses a key that stays. A key
// that is removed and set again may move to an earlier slot behind a reader's
// back; the reader then says that the key is absent, and so it was, at a moment
// between the two and during the reader's search.
const (
	MaxShards = 256
	shardBits = 8 // bits of the hash set apart for choosing one of them

	tagBits  = 15
	tagShift = locationBits
	tagMark  = 1 << tagBits

	slotEmpty = 0
	slotDead  = 1 // not the tag of any key, which has tagMark

	minTable = 8
)

// table is a power of two of slots, never all in use: a search ends at an empty one.
type table struct {
	slots []atomic.Uint64
}

// index has one writer and any number of readers. What only the writer looks at
// is kept apart from the pointers that every reader loads.
type index struct {
	tables []atomic.Pointer[table]
	shift  uint // what leaves as many bits of 64 as number the tables
	counts []shardCount
}

type shardCount struct {
	used uint32 // slots that hold a key
	dead uint32 // slots that are slotDead
}

// newIndex makes an index of n tables, a power of two up to MaxShards.
func newIndex(n int) index {
	return index{
		tables: make([]atomic.Pointer[table], n),
		counts: make([]shardCount, n),
		shift:  uint(64 - bits.TrailingZeros(uint(n))),
	}
}

// shard returns the number of the table that has the keys of a hash.
func (x *index) shard(hash uint64) int {
	// In bounds whatever the shift: that of a single table is 64.
	return int(hash >> x.shift)
}

// From the top of the hash: 8 bits for the shard, 15 bits of tag; from its low end,
// above the flag bits, the slot where the search begins.
func tagOf(hash uint64) uint64  { return hash>>(64-shardBits-tagBits)&(tagMark-1) | tagMark }
func homeOf(hash uint64) uint64 { return hash >> 2 }

// SpareBits returns the 10 bits of a hash, above others, that are neither those of
// the shard nor the first that a table uses.
func SpareBits(hash uint64) uint64 { return hash >> (64 - shardBits - tagBits - 10) }

func slotValue(hash uint64, at location) uint64 { return tagOf(hash)<<tagShift | uint64(at) }
func slotLocation(v uint64) location            { return location(v & (1<<locationBits - 1)) }

// insert puts a key that is not there yet into the index. Writer only.
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

// remove takes the key in slot pos of a shard out of the index. Writer only.
func (x *index) remove(i int, pos uint64, l *log) {
	t, c := x.tables[i].Load(), &x.counts[i]
	mask := uint64(len(t.slots) - 1)
	c.used--
	if t.slots[(pos+1)&mask].Load() != slotEmpty {
		c.dead++
		t.slots[pos&mask].Store(slotDead)
	} else {
		// No search goes on beyond this slot, so it need not be dead, and
		// neither need the dead ones in front of it.
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

// rebuild gives a shard a table for n keys, half full at most, and without dead
// slots. Readers go on in the old one, which stays as it is; they entered before
// any record is unlinked from the new one, and the grace period waits for them.
func (x *index) rebuild(i, n int, l *log) *table {
	size := minTable
	for size < 3*n {
		size *= 2
	}
	t := &table{slots: make([]atomic.Uint64, size)}
	mask := uint64(size - 1)
	if old := x.tables[i].Load(); old != nil {
		// The home of a key is not in its slot, so every key is hashed once
		// more. Several at a time: first all that misses the cache is asked for,
		// then comes the work.
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
	x.tables[i].Store(t)
	return t
}
