package chp

import (
	"errors"
	"testing"
)

// Pieces that lie side by side in a segment become one, which is retained once.
func TestWatchQueueJoinsNeighbours(t *testing.T) {
	t.Parallel()
	one, two := newSegment(1<<10), newSegment(1<<10)
	q := &watchQueue{limit: 1000}
	at := func(seg *segment, off uint32) piece { return piece{seg: seg, off: off, end: off + 10, n: 1} }
	for _, p := range []piece{at(one, 0), at(one, 10), at(one, 30), at(two, 40), at(two, 50), at(one, 60)} {
		if !q.push([]piece{p}) {
			t.Fatal("lagged")
		}
	}
	if one.refs.Load() != 3 || two.refs.Load() != 1 || q.octets != 60 {
		t.Errorf("%d and %d references, %d octets", one.refs.Load(), two.refs.Load(), q.octets)
	}
	for _, want := range []piece{{one, 0, 20, 2}, {one, 30, 40, 1}, {two, 40, 60, 2}, {one, 60, 70, 1}} {
		it, ok, err := q.take()
		if !ok || err != nil || it.piece != want {
			t.Errorf("took %v, %v, %v; want %v", it.piece, ok, err, want)
		}
		it.release()
	}
	if _, ok, err := q.take(); ok || err != nil {
		t.Errorf("an empty queue gave something: %v, %v", ok, err)
	}
	if one.refs.Load() != 0 || two.refs.Load() != 0 || q.octets != 0 {
		t.Errorf("%d and %d references, %d octets are left", one.refs.Load(), two.refs.Load(), q.octets)
	}
}

// The array of a queue that is never quite empty does not grow for ever.
func TestWatchQueueReusesItsArray(t *testing.T) {
	t.Parallel()
	segments := []*segment{newSegment(1 << 10), newSegment(1 << 10)}
	q := &watchQueue{limit: 1000}
	for i := range 10_000 {
		q.push([]piece{{seg: segments[i%2], off: 0, end: 10, n: 1}})
		if i < 5 {
			continue
		}
		it, ok, err := q.take()
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		it.release()
	}
	if n := cap(q.items); n > 64 {
		t.Errorf("an array of %d for 5 items", n)
	}
}

func TestWatchQueueOverflows(t *testing.T) {
	t.Parallel()
	seg := newSegment(1 << 10)
	q := &watchQueue{limit: 25}
	for i, want := range []bool{true, true, false, true} { // the last is not told twice
		if got := q.push([]piece{{seg: seg, off: uint32(i * 10), end: uint32(i*10 + 10), n: 1}}); got != want {
			t.Errorf("push %d: %v, want %v", i, got, want)
		}
	}
	if _, _, err := q.take(); !errors.Is(err, ErrLagged) {
		t.Errorf("error %v", err)
	}
	q.stop(ErrClosed)
	if _, _, err := q.take(); !errors.Is(err, ErrLagged) {
		t.Errorf("the first reason stays: %v", err)
	}
	if n := seg.refs.Load(); n != 0 {
		t.Errorf("%d references are left", n)
	}
}
