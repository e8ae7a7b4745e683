package order

import (
	"encoding/binary"
	"testing"

	"clustermap/internal/kvmsg"
)

// TestUniqueRemembersTheLast: an update that comes again is found, as long as not too many came since, and not if it was lost.
func TestUniqueRemembersTheLast(t *testing.T) {
	t.Parallel()
	record := func(n int) kvmsg.Record {
		id := make([]byte, kvmsg.UUIDSize)
		binary.BigEndian.PutUint64(id, uint64(n)+1)
		return kvmsg.Record(kvmsg.AppendRecord(nil, []byte("/k"), 0, id, nil, []byte("v")))
	}
	var u unique
	for n := range uniqueLast {
		if !u.add(record(n)) {
			t.Fatalf("update %d is taken for another one", n)
		}
	}
	for _, n := range []int{0, 1, uniqueLast - 1} {
		if u.add(record(n)) {
			t.Errorf("update %d is not known", n)
		}
	}
	u.remove(record(1))
	if !u.add(record(1)) || u.add(record(1)) {
		t.Error("an update that is lost is to be taken once more")
	}
	for n := range 3 * uniqueLast {
		u.add(record(uniqueLast + n))
	}
	if !u.add(record(0)) {
		t.Error("an old update is still known")
	}
	if len(u.places) > uniqueLast || len(u.ring) > uniqueLast {
		t.Errorf("%d and %d, more than %d", len(u.places), len(u.ring), uniqueLast)
	}
	without := kvmsg.Record(kvmsg.AppendRecord(nil, []byte("/k"), 0, nil, nil, []byte("v")))
	for range 2 {
		if !u.add(without) {
			t.Error("an update without a UUID is like no other")
		}
	}
}
