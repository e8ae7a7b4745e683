// Package retain is what a server remembers of its updates: the last ones that it has published,
// deletions among them, within a bound of bytes and of time. With it a client that comes back
// gets what it has missed instead of the whole map.
//
// # What a sequence says
//
// A client that says that its replica is at a sequence gets the updates after it. That is right
// only if the replica is what the server's map was then. It is, if the map has the same identity
// and has once been at exactly this sequence: no two servers, and no two runs of one, use a
// sequence for different updates of a map, because each begins at one that is not used
// (state.Unused), and a server that has an update of another one has everything before it, too. A
// replica that has an update which the server's map does not have, as after a failover in which
// the other server had published something alone, is at a sequence that the server does not know.
//
// # Memory
//
// The window keeps pieces of the log. A piece keeps its whole segment, and segments count with
// their whole size, except for the newest, to which the log itself appends. The tails that clients
// are sent refer to the same bytes.
package retain

import (
	"math"
	"time"

	"clustermap/internal/fifo"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
)

// Window has the last updates of a map. The zero Window keeps nothing. Its owner, who is the
// writer of the store, guards it with a mutex.
type Window struct {
	limit int           // bytes
	age   time.Duration // of an update at most; 0 means no limit

	of    *store.Map
	from  int64 // the sequence of the map before the first run
	runs  fifo.Queue[run]
	bytes int           // of the segments
	now   time.Duration // the last Tick
}

// run is updates whose sequences follow each other, in one piece of the log.
type run struct {
	piece       store.Piece
	first, last int64
	at          time.Duration // the last Tick before the first of them
}

// Options bound a window.
type Options struct {
	Bytes int           // of segments; 0 or less means that nothing is kept
	Age   time.Duration // 0 means no limit
}

// Limit sets the bounds, before anything is added.
func (w *Window) Limit(o Options) { w.limit, w.age = o.Bytes, o.Age }

// Bound returns the bound of the bytes.
func (w *Window) Bound() int { return max(w.limit, 0) }

// Begin empties the window: the map is another one, at a sequence. The pieces of the former one
// are no longer referred to.
func (w *Window) Begin(of *store.Map, sequence int64, now time.Duration) {
	w.of, w.from, w.bytes, w.runs, w.now = of, sequence, 0, fifo.Queue[run]{}, now
}

// Of returns the map of Begin, or nil.
func (w *Window) Of() *store.Map { return w.of }

// Tick removes what is too old. The time of updates is that of the last Tick before.
func (w *Window) Tick(now time.Duration) {
	w.now = now
	for w.age > 0 && w.runs.Len() > 0 && now-w.runs.At(0).at > w.age+w.step() {
		w.drop()
	}
}

// step is what the times of the updates in a run may differ by, so that a run has more than what
// came between two Ticks.
func (w *Window) step() time.Duration {
	if w.age == 0 {
		return math.MaxInt64
	}
	return w.age / steps
}

// Add adds updates that are in the map.
func (w *Window) Add(pieces []store.Piece) {
	if w.limit <= 0 {
		return
	}
	for _, p := range pieces {
		first := kvmsg.Record(p.Wire()).Seq()
		last := first + int64(p.Records) - 1
		if n := w.runs.Len(); n > 0 {
			r := w.runs.At(n - 1)
			if r.last+1 == first && w.now-r.at <= w.step() && r.piece.Size()+p.Size() <= runBytes && r.piece.Join(p) {
				r.last = last
				continue
			}
		}
		if w.of.Keep(p.Segment) {
			w.bytes += p.Segment.Size()
		}
		w.runs.Push(run{p, first, last, w.now})
		for w.runs.Len() > 0 && w.bytes-p.Segment.Size() > w.limit {
			w.drop()
		}
	}
}

// drop removes the oldest run.
func (w *Window) drop() {
	r := w.runs.Pop()
	w.from = r.last
	if w.of.Drop(r.piece.Segment) {
		w.bytes -= r.piece.Segment.Size()
	}
}

// find returns the index of the first run with an update after a sequence, and how many of its
// updates are not after it. ok is false if the map, which is at a sequence now, has never been at
// the other one, or before the window begins.
func (w *Window) find(after, now int64) (i, skip int, ok bool) {
	n := w.runs.Len()
	switch {
	case w.of == nil || w.limit <= 0:
		return 0, 0, false
	case after == now:
		return n, 0, true
	case after == w.from:
		return 0, 0, true
	}
	low, high := 0, n // the first run that ends at after or later
	for low < high {
		if mid := (low + high) / 2; w.runs.At(mid).last < after {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == n {
		return 0, 0, false
	}
	r := w.runs.At(low)
	switch {
	case after < r.first-1: // sequences were skipped, before r.first-1
		return 0, 0, false
	case after == r.last:
		return low + 1, 0, true
	}
	return low, int(after - r.first + 1), true
}

// Since returns what was added after a sequence. The map is at sequence now. The caller must
// release the tail. ok is false if the map has never been at that sequence, or if the window
// begins later.
func (w *Window) Since(after, now int64) (t *store.Tail, ok bool) {
	i, skip, ok := w.find(after, now)
	if !ok {
		return nil, false
	}
	pieces := make([]store.Piece, 0, w.runs.Len()-i)
	for ; i < w.runs.Len(); i++ {
		pieces = append(pieces, w.runs.At(i).piece.Skip(skip))
		skip = 0
	}
	return store.NewTail(pieces), true
}

// Oldest returns the lowest sequence from which Since has everything, if the map is at sequence
// now.
func (w *Window) Oldest(now int64) int64 {
	if w.of == nil || w.limit <= 0 {
		return now
	}
	return w.from
}

// Bytes returns the size of the segments that the window keeps.
func (w *Window) Bytes() int { return w.bytes }
