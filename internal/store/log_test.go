package store

import (
	"fmt"
	"testing"

	"clustermap/internal/kvmsg"
)

func TestLogSegmentSizes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ live, burst, need, want int }{
		{0, 0, kvmsg.MinRecord, defaultSegment},
		{0, 0, defaultSegment, 4 * defaultSegment},
		{0, 240_000, 80, 256 << 10},
		{8 << 20, 0, 80, 1 << 20},
		{1 << 30, 0, 80, maxSegment},
		{0, 0, ownSegment, maxSegment},
	} {
		l := log{minSegment: defaultSegment, live: test.live, burst: test.burst}
		if got := l.segmentSize(test.need); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}

// Locations of retired segments must not be found again, however many segments
// have been in their place in the table since.
func TestLogStaleLocations(t *testing.T) {
	t.Parallel()
	l := log{minSegment: 4096, garbageCollected: true}
	var kept []*Segment
	stale := map[location]bool{}
	for i := range 10_000 {
		s := l.addShared(4096)
		if i%100 == 0 {
			kept = append(kept, s)
			continue
		}
		at := locate(s, 0)
		if l.segment(at) != s || stale[at] {
			t.Fatal("a new segment is not found, or has a location that was in use")
		}
		stale[at] = true
		l.seal(s)
		if l.segment(at) != nil {
			t.Fatal("a retired segment is found")
		}
	}
	for at := range stale {
		if l.segment(at) != nil {
			t.Fatal("a stale location leads somewhere")
		}
	}
	for _, s := range kept {
		if l.segment(locate(s, 5)) != s {
			t.Fatal("a segment in use is not found")
		}
	}
	if n := len(*l.table.Load()); n > 4*len(kept) {
		t.Errorf("%d places for %d segments", n, len(kept))
	}
}

// Ids begin again after the last one, and pass over those in use.
func TestLogIdsWrap(t *testing.T) {
	t.Parallel()
	l := log{minSegment: 4096, garbageCollected: true, lastID: idMask - 2}
	seen := map[uint32]bool{}
	for range 10 {
		s := l.addShared(4096)
		if seen[s.id] || s.id > idMask || l.segment(locate(s, 0)) != s {
			t.Fatalf("id %d", s.id)
		}
		seen[s.id] = true
	}
	if !seen[idMask] || !seen[0] {
		t.Errorf("ids are %v", seen)
	}
}

// Not parallel, and so alone: readers of other tests would hold up recycling.
func TestLogRecyclesWhatNobodyUses(t *testing.T) {
	s := New(Options{MinSegment: 4096})
	l := &s.log
	first := l.grow(80)
	second := l.grow(80) // first is sealed and has nothing live: retired
	if len(l.retired) != 1 || l.retired[0].seg != first {
		t.Fatal("a sealed segment without live records is retired")
	}
	if third := l.grow(80); third == first {
		t.Fatal("recycled in the call that retired it: pieces may be in it")
	}
	second.Retain()
	l.begin(0)
	var got []*Segment
	for range 1000 {
		got = append(got, l.grow(80))
		l.begin(0)
	}
	found := map[*Segment]bool{}
	for _, s := range got {
		found[s] = true
	}
	if found[second] {
		t.Error("recycled a segment that is borrowed")
	}
	if l.recycled == 0 {
		t.Error("nothing is recycled")
	}
	if l.retiredSize > l.spare() || l.freeSize > l.keep() {
		t.Errorf("%d bytes retired of %d, %d free of %d", l.retiredSize, l.spare(), l.freeSize, l.keep())
	}
	second.Release()
}

// Segments that are smaller than those that the log needs now make room for them.
func TestLogExchangesSmallSegments(t *testing.T) {
	t.Parallel()
	l := &New(Options{MinSegment: 4096}).log
	for range 4 {
		l.free = append(l.free, newSegment(16<<10))
		l.freeSize += 16 << 10
	}
	large := newSegment(128 << 10)
	l.free = append(l.free, large)
	l.freeSize += len(large.buf)
	l.exchange(32 << 10)
	if len(l.free) != 3 || l.free[2] != large || l.freeSize != 160<<10 {
		t.Errorf("%d free segments with %d bytes", len(l.free), l.freeSize)
	}
}

func TestLogGivesOwnSegmentsToBigRecords(t *testing.T) {
	s := New(Options{})
	small := s.Put([]byte("small"), 1, nil, nil, []byte("v"))
	for i := range 20 {
		big := s.Put([]byte("big"), int64(i+2), nil, nil, make([]byte, 3*maxSegment))
		if big.Segment == small.Segment || !big.Segment.sealed {
			t.Fatal("a big record shares a segment")
		}
		if next := s.Put([]byte("small"), 99, nil, nil, []byte("v")); next.Segment != small.Segment {
			t.Fatal("a big record ends the head")
		}
	}
	if st := s.Stats(); st.LogBytes > 4*maxSegment+defaultSegment || st.IdleBytes > 8*maxSegment {
		t.Errorf("%+v", st)
	}
	if s.log.recycled == 0 {
		t.Error("segments of big records are not recycled")
	}
}

// Deletions go through the log and leave nothing behind in it.
func TestLogOfDeletions(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	for i := range 100_000 {
		s.Put(fmt.Appendf(nil, "/key/%d", i), int64(i+1), nil, nil, nil)
	}
	if st := s.Stats(); st.Keys != 0 || st.LiveBytes != 0 || st.LogBytes > defaultSegment {
		t.Errorf("%+v", st)
	}
	if p := s.Put([]byte("k"), 1, nil, make([]byte, 2*maxSegment), nil); !p.Segment.sealed || s.log.bytes > defaultSegment {
		t.Error("a big deletion stays in use")
	}
}
