package commit

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"clustermap/internal/testenv"
)

// TestGroupParts: an entry of several slices reaches the log as one, and the
// slices belong to the caller again.
func TestGroupParts(t *testing.T) {
	t.Parallel()
	log := &fakeLog{}
	g := NewGroup(log, GroupOptions{Policy: Always()})
	header, run := make([]byte, 24), make([]byte, 3000)
	var parts [][]byte
	fill := func(b []byte, v byte) {
		for i := range b {
			b[i] = v
		}
	}
	const n = 50
	want := func(i int) []byte {
		return append(bytes.Repeat([]byte{byte(i)}, 24), bytes.Repeat([]byte{byte(i + 100)}, i*60)...)
	}
	for i := range n {
		fill(header, byte(i))
		fill(run, byte(i+100))
		parts = parts[:0]
		for range i {
			parts = append(parts, run[:50], nil, run[50:60])
		}
		index, err := g.AppendParts(Entry{First: uint64(i), Records: header}, parts...)
		if err != nil || index != uint64(i)+1 {
			t.Fatal(index, err)
		}
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	for i, e := range log.entries {
		if e.First != uint64(i) || !bytes.Equal(e.Records, want(i)) {
			t.Fatalf("entry %d: %+v", i, e)
		}
	}
	if len(log.entries) != n {
		t.Error(len(log.entries), "entries")
	}
}

// TestGroupRoom: Room waits while the log is behind, and after it an entry of any size
// is taken at once.
func TestGroupRoom(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	log := &fakeLog{}
	g := NewGroup(log, GroupOptions{Policy: Always(), Bytes: 10_000})
	gone, cancel := context.WithCancel(ctx)
	cancel() // calls that have to wait with gone fail
	log.gate.Lock()
	for i := 0; ; i++ {
		err := g.Room(gone)
		if errors.Is(err, context.Canceled) {
			break
		}
		if err != nil || i > 10 {
			t.Fatal(i, err)
		}
		if _, err := g.Append(gone, Entry{Records: make([]byte, 3000)}); err != nil {
			t.Fatal("Append after Room:", err)
		}
	}
	if _, err := g.Append(gone, Entry{}); !errors.Is(err, context.Canceled) {
		t.Error("Append without room:", err)
	}
	done := testenv.Blocked(t, "commit.(*Group).Room", func() error { return g.Room(ctx) })
	if len(done) != 0 {
		t.Fatal("Room did not wait:", <-done)
	}
	log.gate.Unlock()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := g.Append(gone, Entry{Records: make([]byte, 100_000)}); err != nil {
		t.Error("a large entry after Room:", err)
	}
	broken := errors.New("broken")
	log.mu.Lock()
	log.err = broken
	log.mu.Unlock()
	g.Append(ctx, Entry{})
	eventually(t, "the failure", func() bool { return g.Err() != nil })
	if err := g.Room(ctx); !errors.Is(err, broken) {
		t.Error("Room of a log that has failed:", err)
	}
	if err := g.Close(); !errors.Is(err, broken) {
		t.Error("Close:", err)
	}
	if err := g.Room(ctx); !errors.Is(err, broken) {
		t.Error("Room after Close:", err)
	}
}

// TestGroupPartsAllocs: a batch of several slices costs no allocation either.
func TestGroupPartsAllocs(t *testing.T) {
	log := &fakeLog{discard: true}
	g := NewGroup(log, GroupOptions{Bytes: 4 << 20})
	defer g.Close()
	ctx := context.Background()
	header := make([]byte, 24)
	parts := [][]byte{make([]byte, 50<<10), make([]byte, 40<<10)}
	add := func() {
		if err := g.Room(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := g.AppendParts(Entry{Records: header}, parts...); err != nil {
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
