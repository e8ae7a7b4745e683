package durable

import (
	"os"
	"testing"

	"clustermap/chp/commit"
	"clustermap/internal/testenv"
)

// TestAppendAllocs: an entry costs no allocation.
func TestAppendAllocs(t *testing.T) {
	l, _, err := tryOpen(t.TempDir(), disk{data: func(*os.File) error { return nil }, dir: realDisk.dir})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	records := content(1, 200)
	one := make([]commit.Entry, 1)
	add := func() {
		one[0] = commit.Entry{Index: l.Last() + 1, Count: 200, Records: records}
		if err := l.Append(one...); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		add()
	}
	// All of this is in one segment: a change of segments allocates.
	n := testenv.Allocs(0, 100, add)
	if len(l.unsynced) != 1 {
		t.Errorf("%d segments", len(l.unsynced))
	}
	if n > 0 {
		t.Errorf("%.0f allocations an entry", n)
	}
}
