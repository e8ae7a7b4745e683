package watch

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/closed"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
)

// List is the watches of one map. The map's lock guards it: the caller holds it in Push,
// Restart and Close.
type List struct {
	mu        sync.Locker // of the map
	limit     int         // of the queue of each watch: bytes
	remaining func(kvmsg.Record) time.Duration
	feeds     []*Feed
	closed    bool
	lagged    atomic.Uint64
}

// SetUp must be called before all other methods. limit bounds the queue of each watch, in
// bytes. remaining returns the remaining time to live of a record of the map, or 0; it is
// called without the lock.
func (l *List) SetUp(mu sync.Locker, limit int, remaining func(kvmsg.Record) time.Duration) {
	l.mu, l.limit, l.remaining = mu, limit, remaining
}

// Watch begins a watch of some subtrees, which are valid; without any it is of the whole
// map. now returns the map's present state, or nil if it has none; it is called with the
// lock.
func (l *List) Watch(subtrees []string, now func() *State) (*Feed, error) {
	f := newFeed(l, subtrees)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, closed.CHP
	}
	// From here on the batches come after this cut.
	if state := now(); state != nil {
		f.restart(nil, state)
		state.Release()
	}
	l.feeds = append(l.feeds, f)
	return f, nil
}

// Push queues a batch of updates, which are in the map.
func (l *List) Push(pieces []store.Piece) {
	for _, f := range l.feeds {
		if !f.queue.push(pieces) {
			l.lagged.Add(1)
		}
	}
}

// Restart queues the replacement of the state before, whose map has no writer any more, by
// the state after. There may be none before. The functions are called if there are watches.
func (l *List) Restart(before, after func() *State) {
	if len(l.feeds) == 0 {
		return
	}
	old, now := before(), after()
	for _, f := range l.feeds {
		f.restart(old, now)
	}
	old.Release()
	now.Release()
}

// Close ends all watches with the error of a closed map.
func (l *List) Close() {
	l.closed = true
	for _, f := range l.feeds {
		f.queue.stop(closed.CHP)
	}
	l.feeds = nil
}

// Lagged returns the number of watches that ended with ErrLagged.
func (l *List) Lagged() uint64 { return l.lagged.Load() }

// Len returns the number of watches. The caller holds the lock.
func (l *List) Len() int { return len(l.feeds) }

// remove removes a watch, if it is there. It takes the lock.
func (l *List) remove(f *Feed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.feeds, f); i >= 0 {
		l.feeds = slices.Delete(l.feeds, i, i+1)
	}
}
