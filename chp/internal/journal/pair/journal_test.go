package pair

import (
	"testing"

	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/state"
)

// What the other server has acknowledged of a map does not commit updates of the one that has
// replaced it, although their sequences are lower: those of the map before may come from a clock
// that was ahead.
func TestAcknowledgementsOfAnotherMapDoNotCount(t *testing.T) {
	t.Parallel()
	j := New(journal.Memory{}, 2, 1)
	follows := func(newest state.Reign) {
		t.Helper()
		f := j.Follow(true, newest, newest)
		if begins, err := j.Acknowledged(f, newest.Last, newest.Last); err != nil || !begins {
			t.Fatalf("updates do not wait for the follower: %v", err)
		}
	}
	follows(state.Reign{ID: 1, Last: 1000})
	j.Yield()
	j.Restored()
	follows(state.Reign{ID: 2, Last: 5})
	i := j.Append(state.Head{First: 6, Count: 1}, nil, 0)
	if j.Committed(i, 6) {
		t.Error("an update is committed that only this server has")
	}
	if _, err := j.Acknowledged(j.Follower(), 5, 6); err != nil {
		t.Error(err)
	}
	if j.Committed(i, 6) {
		t.Error("an update is committed that the other server has not acknowledged")
	}
}
