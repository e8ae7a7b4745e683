package chp

import (
	"sync"

	"clustermap/internal/store"
)

// watchQueue is what a watch has yet to tell: pieces of the log, and changes of
// state. The client's session puts in, the watch takes out.
//
// A piece that continues the one before it in the same segment becomes part of
// it, so the queue is short even if every update comes alone, and a batch costs
// a few instructions.
type watchQueue struct {
	limit int           // bytes of pieces
	wake  chan struct{} // capacity 1: for the watch, if it waits

	mu      sync.Mutex
	items   []watchItem // from first on, in order
	first   int
	bytes   int
	changes int   // items that are changes
	waits   bool  // the watch waits on wake
	over    error // why nothing comes any more; the queue is empty then
}

// watchItem is a piece of the log or, if change is set, a change of state.
type watchItem struct {
	piece  store.Piece
	change *change
}

// maxChanges bounds the states that a watch holds on to. A client that is
// resynchronised more often than this before the watch has told of the first
// time keeps no more of them.
const maxChanges = 4

func (it *watchItem) release() {
	switch {
	case it.change != nil:
		it.change.release()
	case it.piece.Segment != nil:
		it.piece.Segment.Release()
	}
	*it = watchItem{}
}

// push adds pieces. It reports false if that is too much: the queue is then
// over, with ErrLagged.
func (q *watchQueue) push(pieces []store.Piece) bool {
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
		q.add(watchItem{piece: p})
	}
	q.rouse()
	return true
}

// pushChange adds a change of state, as push does.
func (q *watchQueue) pushChange(d *change) bool {
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
	q.add(watchItem{change: d})
	q.rouse()
	return true
}

// add appends an item, moving the others to the front of the array if that
// makes room.
func (q *watchQueue) add(it watchItem) {
	if len(q.items) == cap(q.items) && q.first > len(q.items)/2 {
		n := copy(q.items, q.items[q.first:])
		clear(q.items[n:])
		q.items, q.first = q.items[:n], 0
	}
	q.items = append(q.items, it)
}

// rouse wakes the watch if it waits. mu must be held.
func (q *watchQueue) rouse() {
	if q.waits {
		q.waits = false
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// end gives up what is queued, for the reason given. mu must be held.
func (q *watchQueue) end(reason error) {
	q.over = reason
	for i := q.first; i < len(q.items); i++ {
		q.items[i].release()
	}
	q.items, q.first, q.bytes, q.changes = nil, 0, 0, 0
	q.rouse()
}

// stop ends the queue, unless it is over already.
func (q *watchQueue) stop(reason error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over == nil {
		q.end(reason)
	}
}

// take returns the first item, which is the caller's to release. If there is
// none it returns false, and then wake will be signalled when that changes.
func (q *watchQueue) pop() (it watchItem, ok bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over != nil {
		return watchItem{}, false, q.over
	}
	if q.first == len(q.items) {
		q.items, q.first = q.items[:0], 0
		q.waits = true
		return watchItem{}, false, nil
	}
	it = q.items[q.first]
	q.items[q.first] = watchItem{}
	q.first++
	if it.change != nil {
		q.changes--
	} else {
		q.bytes -= it.piece.Size()
	}
	return it, true, nil
}
