package commit

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// flushLog is a log in memory whose flushes wait for a value in turn.
type flushLog struct {
	fakeLog
	turn  chan error
	begun chan struct{} // gets a value when a flush begins
}

func newFlushLog() *flushLog {
	return &flushLog{turn: make(chan error, 1000), begun: make(chan struct{}, 1000)}
}

func (l *flushLog) Sync() error {
	l.mu.Lock()
	last := uint64(len(l.entries))
	l.syncs++
	l.mu.Unlock()
	l.begun <- struct{}{}
	err := <-l.turn
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.synced = last
	}
	return err
}

// TestGroupWritesDuringFlush: entries are written while a flush runs, count as
// durable only after the next one, and one flush serves all of them.
func TestGroupWritesDuringFlush(t *testing.T) {
	t.Parallel()
	for _, policy := range []Policy{Always(), Interval(time.Millisecond)} {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			log := newFlushLog()
			var mu sync.Mutex
			var told []uint64
			g := NewGroup(log, GroupOptions{Policy: policy, OnDurable: func(index uint64) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, index)
			}})
			g.Append(ctx, Entry{})
			<-log.begun
			for range 20 {
				index, err := g.Append(ctx, Entry{Records: []byte("x")})
				if err != nil {
					t.Fatal(err)
				}
				eventually(t, "the write beside the flush", func() bool { return g.Written() == index })
			}
			if g.Durable() != 0 {
				t.Error("durable before the flush has ended:", g.Durable())
			}
			log.turn <- nil
			if err := g.Wait(ctx, 1); err != nil {
				t.Fatal(err)
			}
			<-log.begun
			if d := g.Durable(); d != 1 {
				t.Error("after the first flush durable to", d)
			}
			if _, _, committed := log.seen(); committed != 1 {
				t.Error("after the first flush committed to", committed)
			}
			log.turn <- nil
			if err := g.Wait(ctx, 21); err != nil {
				t.Fatal(err)
			}
			if err := g.Close(); err != nil {
				t.Fatal(err)
			}
			if len(told) != 2 || told[0] != 1 || told[1] != 21 || g.Flushes() != 2 {
				t.Error("flushed to", told)
			}
		})
	}
}

// TestGroupFlushPressure: with the policy always, written entries that are not flushed
// count as held, so that a disk that flushes slowly slows down the server; with other
// policies it does not.
func TestGroupFlushPressure(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	log := newFlushLog()
	g := NewGroup(log, GroupOptions{Policy: Always(), Bytes: 10_000})
	gone, cancel := context.WithCancel(ctx)
	cancel()
	n := uint64(0)
	for ; ; n++ {
		_, err := g.Append(gone, Entry{Records: make([]byte, 1000)})
		if errors.Is(err, context.Canceled) {
			break
		}
		if err != nil || n > 10 {
			t.Fatal(n, err)
		}
	}
	eventually(t, "the writes", func() bool { return g.Written() == n })
	if err := g.Room(gone); !errors.Is(err, context.Canceled) {
		t.Error("room although nothing is flushed:", err)
	}
	log.turn <- nil
	log.turn <- nil
	if err := g.Room(ctx); err != nil {
		t.Error(err)
	}
	if err := g.Wait(ctx, n); err != nil {
		t.Error(err)
	}
	g.mu.Lock()
	if g.waiting != 0 || g.writing != 0 {
		t.Errorf("%d bytes still count as unflushed, %d as unwritten", g.waiting, g.writing)
	}
	g.mu.Unlock()
	g.Close()

	log = newFlushLog()
	g = NewGroup(log, GroupOptions{Policy: Interval(time.Millisecond), Bytes: 10_000})
	for i := range 100 {
		if _, err := g.Append(ctx, Entry{Records: make([]byte, 1000)}); err != nil {
			t.Fatal(i, err)
		}
	}
	for range 100 {
		log.turn <- nil
	}
	if err := g.Close(); err != nil || g.Durable() != 100 {
		t.Error(err, g.Durable())
	}
}

// TestGroupFlushFails: nothing that was written beside a flush that fails counts as
// durable, and the writer ends.
func TestGroupFlushFails(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	broken := errors.New("broken")
	log := newFlushLog()
	g := NewGroup(log, GroupOptions{Policy: Always()})
	g.Append(ctx, Entry{})
	<-log.begun
	g.Append(ctx, Entry{})
	eventually(t, "the write beside the flush", func() bool { return g.Written() == 2 })
	log.turn <- broken
	for index := range uint64(2) {
		if err := g.Wait(ctx, index+1); !errors.Is(err, broken) {
			t.Error(err)
		}
	}
	if _, err := g.Append(ctx, Entry{}); !errors.Is(err, broken) {
		t.Error("Append:", err)
	}
	if err := g.Close(); !errors.Is(err, broken) || g.Durable() != 0 {
		t.Error("Close:", err, g.Durable())
	}
	if _, syncs, _ := log.seen(); syncs != 1 {
		t.Error(syncs, "flushes after one that failed")
	}
}
