package watch

import (
	"errors"
	"testing"

	"clustermap/internal/closed"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
)

// Pieces that lie side by side in a segment become one, which is retained once.
func TestQueueJoinsNeighbours(t *testing.T) {
	t.Parallel()
	one, two := store.New(store.Options{}), store.New(store.Options{})
	q := &queue{limit: 1000}
	size := 0
	put := func(s *store.Map, key string) store.Piece {
		p := s.Put([]byte(key), 1, nil, nil, []byte("v"))
		size = p.Size()
		return p
	}
	push := func(s *store.Map, key string) {
		if !q.push([]store.Piece{put(s, key)}) {
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
	if one.References() != 3 || two.References() != 1 || q.bytes != 6*size {
		t.Errorf("%d and %d references, %d bytes", one.References(), two.References(), q.bytes)
	}
	for _, want := range []string{"ab", "c", "de", "f"} {
		it, ok, err := q.pop()
		if !ok || err != nil || it.piece.Records != len(want) {
			t.Fatalf("took %v, %v, %v; want %s", it.piece, ok, err, want)
		}
		got := ""
		for wire := it.piece.Wire(); len(wire) > 0; wire = wire[kvmsg.Record(wire).Size():] {
			got += string(kvmsg.Record(wire).Key())
		}
		if got != want {
			t.Errorf("took %s, want %s", got, want)
		}
		it.release()
	}
	if _, ok, err := q.pop(); ok || err != nil {
		t.Errorf("an empty queue gave something: %v, %v", ok, err)
	}
	if one.References() != 0 || two.References() != 0 || q.bytes != 0 {
		t.Errorf("%d and %d references, %d bytes are left", one.References(), two.References(), q.bytes)
	}
}

// The array of a queue that is never quite empty does not grow for ever.
func TestQueueReusesItsArray(t *testing.T) {
	t.Parallel()
	pieces := []store.Piece{
		store.New(store.Options{}).Put([]byte("a"), 1, nil, nil, []byte("v")),
		store.New(store.Options{}).Put([]byte("b"), 1, nil, nil, []byte("v")),
	}
	q := &queue{limit: 1000}
	for i := range 10_000 {
		q.push(pieces[i%2 : i%2+1])
		if i < 5 {
			continue
		}
		it, ok, err := q.pop()
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		it.release()
	}
	if n := cap(q.items); n > 64 {
		t.Errorf("an array of %d for 5 items", n)
	}
}

func TestQueueOverflows(t *testing.T) {
	t.Parallel()
	s := store.New(store.Options{})
	size := kvmsg.RecordSize(1, 0, 0, 1)
	q := &queue{limit: 2*size + size/2}
	for i, want := range []bool{true, true, false, true} { // the last is not told twice
		if got := q.push([]store.Piece{s.Put([]byte{byte('a' + i)}, 1, nil, nil, []byte("v"))}); got != want {
			t.Errorf("push %d: %v, want %v", i, got, want)
		}
	}
	if _, _, err := q.pop(); !errors.Is(err, ErrLagged) {
		t.Errorf("error %v", err)
	}
	q.stop(closed.CHP)
	if _, _, err := q.pop(); !errors.Is(err, ErrLagged) {
		t.Errorf("the first reason stays: %v", err)
	}
	if n := s.References(); n != 0 {
		t.Errorf("%d references are left", n)
	}
}
