package commit

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"

	"clustermap/internal/testenv"
)

// partsLog is a fakeLog that takes entries with parts.
type partsLog struct {
	fakeLog
	inPlace func(part []byte)
}

func (l *partsLog) GathersParts() {}

func (l *partsLog) Append(entries ...Entry) error {
	whole := make([]Entry, len(entries))
	for i, e := range entries {
		for _, p := range e.Parts {
			l.inPlace(p)
		}
		e.Records, e.Parts = bytes.Join(append([][]byte{e.Records}, e.Parts...), nil), nil
		whole[i] = e
	}
	return l.fakeLog.Append(whole...)
}

// lender counts the references to lent bytes.
type lender struct{ lent atomic.Int64 }

func (l *lender) Release() { l.lent.Add(-1) }

// TestGroupLend: a log that takes parts gets the very bytes, any other one gets them as one;
// they are released when they are written, and when the log has failed.
func TestGroupLend(t *testing.T) {
	t.Parallel()
	parts := [][]byte{[]byte("one"), nil, []byte("two")}
	inPlace := 0
	gathers := &partsLog{inPlace: func(p []byte) {
		for _, q := range parts {
			if len(p) > 0 && len(q) > 0 && &p[0] == &q[0] {
				inPlace++
			}
		}
	}}
	for _, log := range []interface {
		Log
		fail(error)
		have() []Entry
	}{&fakeLog{}, gathers} {
		var from lender
		g := NewGroup(log, GroupOptions{Policy: Always()})
		lend := func() error {
			var lent []Lent
			for _, p := range parts {
				lent = append(lent, Lent{p, &from})
			}
			from.lent.Add(int64(len(lent)))
			_, err := g.Lend(Entry{Records: []byte("head ")}, lent...)
			if err != nil {
				from.lent.Add(-int64(len(lent)))
			}
			return err
		}
		const n = 100
		for range n {
			if err := lend(); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Flush(testContext(t)); err != nil {
			t.Fatal(err)
		}
		for _, e := range log.have() {
			if string(e.Records) != "head onetwo" || len(e.Parts) > 0 {
				t.Fatalf("the log has %q and %d parts", e.Records, len(e.Parts))
			}
		}
		eventually(t, "all is released", func() bool { return from.lent.Load() == 0 })
		broken := errors.New("broken")
		log.fail(broken)
		for lend() == nil {
		}
		if err := g.Close(); !errors.Is(err, broken) {
			t.Error(err)
		}
		if left := from.lent.Load(); left != 0 {
			t.Errorf("%d parts are not released after the log has failed", left)
		}
	}
	if inPlace < 200 {
		t.Errorf("%d parts were not copied, want 200", inPlace)
	}
}

func (l *fakeLog) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *fakeLog) have() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries
}

// TestGroupLendAllocs: what is lent costs no allocation.
func TestGroupLendAllocs(t *testing.T) {
	log := &partsLog{fakeLog: fakeLog{discard: true}, inPlace: func([]byte) {}}
	g := NewGroup(&discards{log}, GroupOptions{Bytes: 4 << 20})
	defer g.Close()
	ctx := testContext(t)
	var from lender
	lent := []Lent{{make([]byte, 50<<10), &from}, {make([]byte, 40<<10), &from}}
	head := make([]byte, 24)
	add := func() {
		if err := g.Room(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Lend(Entry{Records: head}, lent...); err != nil {
			t.Fatal(err)
		}
	}
	for range 200 {
		add()
	}
	// When Room has to wait, it makes a channel to wait for.
	if n := testenv.Allocs(0, 200, add); n > 1 {
		t.Errorf("%.1f allocations a batch", n)
	}
}

// discards takes entries with parts and keeps nothing.
type discards struct{ *partsLog }

func (l *discards) Append(entries ...Entry) error { return l.fakeLog.Append(entries...) }
