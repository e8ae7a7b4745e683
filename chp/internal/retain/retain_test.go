package retain

import (
	"fmt"
	"testing"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
)

// world is a map whose updates go into a window.
type world struct {
	of     store.Map
	window Window
	last   int64
}

func newWorld(o Options, now time.Duration) *world {
	w := &world{last: 100}
	w.of.SetUp(store.Options{})
	w.window.Limit(o)
	w.window.Begin(&w.of, w.last, now)
	return w
}

func (w *world) set(key string, size int) {
	w.last++
	wire := kvmsg.AppendRecord(nil, []byte(key), 0, nil, nil, make([]byte, size))
	spans := []buf.Span{{End: uint32(len(wire)), Tag: kvmsg.HashKey([]byte(key))}}
	w.window.Add(w.of.Apply(wire, spans, w.last, nil))
}

// since returns how many updates the window has after a sequence, or -1.
func (w *world) since(after int64) int {
	t, ok := w.window.Since(after, w.last)
	if !ok {
		return -1
	}
	defer t.Release()
	n := 0
	t.From(0, func(r kvmsg.Record, _ store.Position) bool {
		if n++; r.Seq() <= after {
			n = -1000
		}
		return true
	})
	return n
}

// Updates are known for a time, counted from the beginning of the window, and no longer.
func TestWindowForgetsAfterATime(t *testing.T) {
	t.Parallel()
	const begun = 40 * 365 * 24 * time.Hour // as far as a clock may be
	w := newWorld(Options{Bytes: 1 << 20, Age: time.Minute}, begun)
	for range 10 {
		w.set("/a", 1)
	}
	for s := time.Duration(1); s <= 60; s++ {
		w.window.Tick(begun + s*time.Second)
		if got := w.since(100); got != 10 {
			t.Fatalf("after %d s there are %d updates", s, got)
		}
	}
	w.set("/a", 1)
	w.window.Tick(begun + 62*time.Second)
	if before, after := w.since(100), w.since(110); before != -1 || after != 1 || w.window.Oldest(w.last) != 110 {
		t.Errorf("then %d and %d updates, the oldest after %d", before, after, w.window.Oldest(w.last))
	}
}

// A window has whole segments within its bound, apart from the newest; what it has dropped is
// used again; and it knows exactly the sequences that the map has had.
func TestWindowIsBoundedAndExact(t *testing.T) {
	t.Parallel()
	w := newWorld(Options{Bytes: 256 << 10}, 0)
	for i := range 20_000 {
		w.set(fmt.Sprint("/", i%100), 100)
		if got := w.window.Bytes(); got > 256<<10+w.of.LogBytes() {
			t.Fatalf("%d bytes are kept", got)
		}
		if i == 9999 {
			w.last += 1_000_000 // sequences that are not used
		}
	}
	oldest := w.window.Oldest(w.last)
	for after := oldest - 3; after <= w.last+3; after++ {
		want := int(w.last - after)
		if after < oldest || after > w.last {
			want = -1
		}
		if got := w.since(after); got != want {
			t.Fatalf("after %d, of %d to %d, there are %d updates, want %d", after, oldest, w.last, got, want)
		}
	}
	w.last += 1000
	for after, want := range map[int64]int{w.last - 1000: 0, w.last - 999: -1, w.last - 1: -1, w.last: 0} {
		if got := w.since(after); got != want {
			t.Errorf("at the end of a gap: %d updates after %d", got, w.last-after)
		}
	}
	if idle := w.of.Stats().IdleBytes; idle > 1<<20 {
		t.Errorf("%d bytes wait to be used again", idle)
	}
}
