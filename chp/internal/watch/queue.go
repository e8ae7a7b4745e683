package watch

import (
	"sync"

	"clustermap/internal/store"
	"clustermap/internal/wake"
)

// queue is the queue of a watch: pieces of the log, and changes of state. The map's writer
// pushes, the watch pops.
//
// A piece that continues the previous one in the same segment is joined to it. So the
// queue is short even if every update arrives alone, and a batch costs a few
// instructions.
type queue struct {
	limit int           // bound of bytes
	wake  chan struct{} // capacity 1; wakes the watch

	mu      sync.Mutex
	items   []item // in order, from first on
	first   int
	bytes   int
	changes int   // number of items that are changes
	waits   bool  // the watch waits on wake
	over    error // why the queue has ended; it is then empty
}

// item is a change of state if change is set, a mark if marks is, otherwise a piece of the log.
type item struct {
	piece  store.Piece
	change *change
	free   bool // the piece does not count: see pushTail

	marks  bool  // the map is at a sequence
	synced bool  // and the events before it are a whole state
	mark   int64 // that sequence
}

func (it *item) release() {
	switch {
	case it.change != nil:
		it.change.release()
	case it.piece.Segment != nil:
		it.piece.Segment.Release()
	}
	*it = item{}
}

// push adds pieces. If the queue is full, it ends the queue with ErrLagged and returns
// false.
func (q *queue) push(pieces []store.Piece) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over != nil {
		return true
	}
	for _, p := range pieces {
		size := p.Size()
		if q.bytes > 0 && q.bytes+size > q.limit {
			q.end(ErrLagged)
			return false
		}
		q.bytes += size
		if n := len(q.items); n > q.first {
			if q.items[n-1].piece.Join(p) {
				continue
			}
		}
		p.Segment.Retain()
		q.add(item{piece: p})
	}
	q.signal()
	return true
}

// pushChange adds a change of state, as push does.
func (q *queue) pushChange(d *change) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over != nil {
		d.release()
		return true
	}
	if q.changes == maxChanges {
		d.release()
		q.end(ErrLagged)
		return false
	}
	q.changes++
	q.add(item{change: d})
	q.signal()
	return true
}

// pushTail adds the pieces of a tail, at the beginning. They do not count, because the bound is one
// of how far a watch falls behind.
func (q *queue) pushTail(t *store.Tail) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range t.Pieces() {
		p.Segment.Retain()
		q.add(item{piece: p, free: true})
	}
}

// pushMark adds a mark, as push does. One that follows another takes its place, unless that is
// OpSynced.
func (q *queue) pushMark(sequence int64, synced bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over != nil {
		return true
	}
	if n := len(q.items); n > q.first && q.items[n-1].marks && !synced {
		q.items[n-1].mark = max(q.items[n-1].mark, sequence)
		return true
	}
	if q.bytes > 0 && q.bytes+markBytes > q.limit {
		q.end(ErrLagged)
		return false
	}
	q.bytes += markBytes
	q.add(item{marks: true, synced: synced, mark: sequence})
	q.signal()
	return true
}

// add appends an item. If the array is full it first moves the items to its start, if
// that makes room.
func (q *queue) add(it item) {
	if len(q.items) == cap(q.items) && q.first > len(q.items)/2 {
		n := copy(q.items, q.items[q.first:])
		clear(q.items[n:])
		q.items, q.first = q.items[:n], 0
	}
	q.items = append(q.items, it)
}

func (q *queue) signal() {
	if q.waits {
		q.waits = false
		wake.Signal(q.wake)
	}
}

// end ends the queue and drops its items. mu must be held.
func (q *queue) end(reason error) {
	q.over = reason
	q.drop()
	q.signal()
}

// clear drops the items.
func (q *queue) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop()
}

// drop drops the items. mu must be held.
func (q *queue) drop() {
	for i := q.first; i < len(q.items); i++ {
		q.items[i].release()
	}
	q.items, q.first, q.bytes, q.changes = nil, 0, 0, 0
}

// stop ends the queue unless it has ended already.
func (q *queue) stop(reason error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over == nil {
		q.end(reason)
	}
}

// pop removes and returns the first item, which the caller must release. If the queue
// is empty, it returns false and wake is signaled when that changes.
func (q *queue) pop() (it item, ok bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over != nil {
		return item{}, false, q.over
	}
	if q.first == len(q.items) {
		q.items, q.first = q.items[:0], 0
		q.waits = true
		return item{}, false, nil
	}
	it = q.items[q.first]
	q.items[q.first] = item{}
	q.first++
	switch {
	case it.change != nil:
		q.changes--
	case it.marks:
		q.bytes -= markBytes
	case !it.free:
		q.bytes -= it.piece.Size()
	}
	return it, true, nil
}
