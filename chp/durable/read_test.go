package durable

import (
	"testing"

	"clustermap/chp/commit"
)

// TestReadBesideWriter reads while entries are appended and checkpoints remove
// the segments being read.
func TestReadBesideWriter(t *testing.T) {
	t.Parallel()
	l, _ := mustOpen(t, t.TempDir())
	fill(t, l, 200, 3)
	next := uint64(1)
	err := l.Read(1, func(e commit.Entry) error {
		if e.Index != next {
			t.Fatalf("entry %d, want %d", e.Index, next)
		}
		if next%20 == 0 {
			fill(t, l, l.Last()+30, 3)
			flush(t, l)
			writeCheckpoint(t, l, l.Last()-5, 1)
		}
		next++
		return same(e)
	})
	if err != nil || next != 201 {
		t.Fatal(next, err)
	}
	if l.First() < 400 {
		t.Error("after the reader ended, the log begins with", l.First())
	}
}
