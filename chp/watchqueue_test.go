package chp

import (
	"errors"
	"testing"
)

// Pieces that lie side by side in a segment become one, which is retained once.
func TestWatchQueueJoinsNeighbours(t *testing.T) {
	t.Parallel()
	one, two := newStore(storeOptions{}), newStore(storeOptions{})
	q := &watchQueue{limit: 1000}
	size := 0
	put := func(s *store, key string) piece {
		p := s.put([]byte(key), 1, nil, nil, []byte("v"))
		size = p.size()
		return p
	}
	push := func(s *store, key string) {
		if !q.push([]piece{put(s, key)}) {
			t.Fatal("lagged")
		}
	}
	push(one, "a")
	push(one, "b")
	put(one, "between")
	push(one, "c")
	push(two, "d")
	push(two, "e")
	push(one, "f")
	if one.borrowers() != 3 || two.borrowers() != 1 || q.octets != 6*size {
		t.Errorf("%d and %d references, %d octets", one.borrowers(), two.borrowers(), q.octets)
	}
	for _, want := range []string{"ab", "c", "de", "f"} {
		it, ok, err := q.take()
		if !ok || err != nil || it.piece.n != len(want) {
			t.Fatalf("took %v, %v, %v; want %s", it.piece, ok, err, want)
		}
		got := ""
		for wire := it.piece.wire(); len(wire) > 0; wire = wire[record(wire).size():] {
			got += string(record(wire).key())
		}
		if got != want {
			t.Errorf("took %s, want %s", got, want)
		}
		it.release()
	}
	if _, ok, err := q.take(); ok || err != nil {
		t.Errorf("an empty queue gave something: %v, %v", ok, err)
	}
	if one.borrowers() != 0 || two.borrowers() != 0 || q.octets != 0 {
		t.Errorf("%d and %d references, %d octets are left", one.borrowers(), two.borrowers(), q.octets)
	}
}

// The array of a queue that is never quite empty does not grow for ever.
func TestWatchQueueReusesItsArray(t *testing.T) {
	t.Parallel()
	pieces := []piece{
		newStore(storeOptions{}).put([]byte("a"), 1, nil, nil, []byte("v")),
		newStore(storeOptions{}).put([]byte("b"), 1, nil, nil, []byte("v")),
	}
	q := &watchQueue{limit: 1000}
	for i := range 10_000 {
		q.push(pieces[i%2 : i%2+1])
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
	s := newStore(storeOptions{})
	size := recordSize(1, 0, 0, 1)
	q := &watchQueue{limit: 2*size + size/2}
	for i, want := range []bool{true, true, false, true} { // the last is not told twice
		if got := q.push([]piece{s.put([]byte{byte('a' + i)}, 1, nil, nil, []byte("v"))}); got != want {
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
	if n := s.borrowers(); n != 0 {
		t.Errorf("%d references are left", n)
	}
}
