package store

import "testing"

// The parts that the index takes from a hash must not overlap, or the keys of a
// shard would crowd in one place of its table.
func TestHashPartsAreIndependent(t *testing.T) {
	t.Parallel()
	x := newIndex(MaxShards)
	for bit := range 64 {
		h, parts := uint64(1)<<bit, 0
		if x.shard(h) != x.shard(0) {
			parts++
		}
		if tagOf(h) != tagOf(0) {
			parts++
		}
		if homeOf(h)&(1<<30-1) != homeOf(0) {
			parts++
		}
		if parts > 1 {
			t.Errorf("bit %d of the hash is used %d times", bit, parts)
		}
	}
	one := newIndex(1)
	if one.shard(^uint64(0)) != 0 {
		t.Error("an index of one table has another")
	}
}
