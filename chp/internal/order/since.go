package order

import (
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/retain"
	"clustermap/chp/internal/watch"
	"clustermap/internal/store"
)

// Since returns what was put into the map after a sequence, if the map with an identity, or any
// map if that is zero, was once at exactly that one and the window has everything since. The
// caller must release a tail.
func (q *Sequencer) Since(id [ledger.MapIDSize]byte, after int64) (p retain.Past) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.state.Last()
	p = retain.Past{Deadlines: &q.state.Deadlines, ID: q.state.ID, Sequence: now, Last: q.state.Terms.Newest.Last, Oldest: q.window.Oldest(now)}
	if id == q.state.ID || id == [ledger.MapIDSize]byte{} {
		p.Tail, _ = q.window.Since(after, now)
	}
	return p
}

// Watch begins a watch with what came after a sequence. If that is not known, there is no watch,
// and oldest is the lowest one after which everything is.
func (q *Sequencer) Watch(o watch.Options, after int64) (f *watch.Feed, oldest int64, err error) {
	f, err = q.live.WatchSince(o, func() (*store.Tail, int64) {
		now := q.state.Last()
		oldest = q.window.Oldest(now)
		tail, _ := q.window.Since(after, now)
		return tail, q.state.Place()
	})
	return f, oldest, err
}

// Retained returns the bytes of the segments that the window keeps.
func (q *Sequencer) Retained() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.window.Bytes()
}
