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

// Options say what a watch reports.
type Options struct {
	Subtrees  []string // valid ones; without any it is the whole map
	Quiet     bool     // not the state with which it begins, but OpSynced in its place
	Unmarked  bool     // and not that either
	Bookmarks bool
}

// Watch begins a watch. now returns the map's present state, or nil if it has none; it is called
// with the lock.
func (l *List) Watch(o Options, now func() *State) (*Feed, error) {
	return l.begin(o, func(f *Feed) {
		if state := now(); state != nil {
			f.restart(nil, state)
			state.Release()
		}
	})
}

// Since begins a watch with a tail that ends with the map's present state, at a sequence, and
// OpSynced. past returns both; it is called with the lock. If it returns no tail, there is no
// watch.
func (l *List) Since(o Options, past func() (*store.Tail, int64)) (f *Feed, err error) {
	o.Quiet = true
	found := false
	f, err = l.begin(o, func(f *Feed) {
		tail, sequence := past()
		if found = tail != nil; found {
			f.quiet = false
			f.queue.pushTail(tail)
			f.queue.pushMark(sequence, true)
			tail.Release()
		}
	})
	if err == nil && !found {
		f.Close()
		f = nil
	}
	return f, err
}

// begin begins a watch. first is called with the lock: from then on batches are queued.
func (l *List) begin(o Options, first func(f *Feed)) (*Feed, error) {
	f := newFeed(l, o)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, closed.CHP
	}
	first(f)
	l.feeds = append(l.feeds, f)
	return f, nil
}

// Bookmark tells the watches that want it that the map is at a sequence.
func (l *List) Bookmark(sequence int64) {
	for _, f := range l.feeds {
		if f.bookmarks && !f.queue.pushMark(sequence, false) {
			l.lagged.Add(1)
		}
	}
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
