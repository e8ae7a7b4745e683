package durable

import (
	"bytes"
	"os"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/internal/testenv"
)

// TestAppendAllocs: an entry costs no allocation.
func TestAppendAllocs(t *testing.T) {
	l, _, err := tryOpen(t.TempDir(), file.Disk{Data: func(*os.File) error { return nil }, Dir: file.Real.Dir})
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
	if files, _ := l.w.Unflushed(); len(files) != 1 {
		t.Errorf("%d segments", len(files))
	}
	if n > 0 {
		t.Errorf("%.0f allocations an entry", n)
	}
}

// TestParts: an entry in parts is the same entry, also over the end of a segment.
func TestParts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _, err := tryOpen(dir, file.Real)
	if err != nil {
		t.Fatal(err)
	}
	const n = 300
	for i := uint64(1); i <= n; i++ {
		e := entry(i)
		third := len(e.Records) / 3
		e.Records, e.Parts = e.Records[:third], [][]byte{e.Records[third : 2*third], nil, e.Records[2*third:]}
		if err := l.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, r, err := tryOpen(dir, file.Real)
	if err != nil || r.Last != n {
		t.Fatal(r, err)
	}
	defer l.Close()
	err = l.Read(1, func(e commit.Entry) error {
		want := entry(e.Index)
		if !bytes.Equal(e.Records, want.Records) {
			t.Errorf("entry %d has %d bytes, want %d", e.Index, len(e.Records), len(want.Records))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
