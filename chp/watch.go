package chp

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/subtree"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
)

// Watch reports the keys of a client's replica or of a server's map, or of some of its
// subtrees, and their changes: first an OpSet for every key of a consistent state, then
// OpSynced, then every change exactly once, in the server's order. [Client.Watch] and
// [Server.Watch] begin one.
//
// A key can disappear in three ways, which Event.Cause tells apart: it was deleted
// (CauseDeleted), its time to live ended (CauseExpired), or it is not in a new snapshot
// (CauseResync).
//
// After the client has fetched a new snapshot, from the same server or another, the
// watch reports the differences from its earlier events: an OpSet for each key that is
// new or has another value, and an OpDelete for each that is gone, with CauseResync.
// There is no second OpSynced.
//
// The events wait in a bounded queue (ClientOptions.WatchQueue, ServerOptions.WatchQueue). A watch that is not
// read fast enough ends with ErrLagged: the events in its queue are discarded, too, so no
// event is skipped between two that are reported. A watch keeps memory
// until it is closed.
//
// Only one goroutine at a time may fetch events; any goroutine may call Close.
type Watch struct {
	source   watchSource
	subtrees subtree.Set
	queue    watchQueue
	fresh    bool // nothing was reported or queued yet; guarded by the source's lock

	use atomic.Uint32 // watchIdle, watchUsed or watchClosed: says whether a goroutine owns item and bytes

	// Owned by the fetching goroutine while use is watchUsed.
	item  watchItem
	bytes []byte // of a piece, not yet reported
}

// watchSource is a Client or a Server. It pushes to its watches in the order of the
// updates, holding a lock of its own.
type watchSource interface {
	unwatch(w *Watch)                       // ends pushing to w; takes the lock
	remaining(r kvmsg.Record) time.Duration // as deadlines.remaining
	lag()                                   // counts a watch that ended with ErrLagged
}

// States of Watch.use.
const (
	watchIdle   uint32 = iota
	watchUsed          // a goroutine is fetching
	watchClosed        // no goroutine may begin to fetch; one that is fetching cleans up
)

// errWatchBusy is returned to the second of two goroutines.
var errWatchBusy = errors.New("chp: another goroutine is fetching events of this watch")

// Watch begins to watch some of the client's subtrees, in the form of
// ClientOptions.Subtrees; without arguments it watches all of them. Watch("/a/b/")
// reports every key that begins with these bytes, and Watch("/a/b"), without the slash at
// the end, only the key of that name. The client need not be ACTIVE: the watch reports
// the present state, or the first snapshot if there is none yet. Watch returns a *SubtreeError for a malformed subtree, and
// ErrOutsideSubtrees for one that is outside of the client's subtrees.
func (c *Client) Watch(subtrees ...string) (*Watch, error) {
	for _, spec := range subtrees {
		if err := subtree.Check(spec); err != nil {
			return nil, err
		}
		if !c.subtrees.Meets(spec) {
			return nil, ErrOutsideSubtrees
		}
	}
	w := newWatch(c, subtrees, c.opts.WatchQueue)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.ctx.Err() != nil {
		return nil, ErrClosed
	}
	// From here on the session's batches come after this cut.
	if state := c.state.Load(); state != nil {
		now := newStateView(&state.Map, state.deadlines, c.sequence.Load())
		w.restart(nil, now)
		now.release()
	}
	c.watches = append(c.watches, w)
	return w, nil
}

func newWatch(source watchSource, specs []string, queue int) *Watch {
	w := &Watch{source: source, subtrees: subtree.New(specs), fresh: true}
	w.queue.limit = queue
	w.queue.wake = make(chan struct{}, 1)
	return w
}

// unwatch, lag and remaining make a Client a watchSource.
func (c *Client) unwatch(w *Watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.watches, w); i >= 0 {
		c.watches = slices.Delete(c.watches, i, i+1)
	}
}

func (c *Client) lag() { c.lagged.Add(1) }

func (c *Client) remaining(r kvmsg.Record) time.Duration {
	return c.state.Load().deadlines.Remaining(r)
}

// restart queues the replacement of the state before by the state after. The source's
// lock must be held.
func (w *Watch) restart(before, after *stateView) {
	d := &change{after: after.retain()}
	if w.fresh {
		w.fresh = false
		d.synced = true
	} else {
		d.before = before.retain()
	}
	if !w.queue.pushChange(d) {
		w.source.lag()
	}
}

// push queues a batch of updates. The source's lock must be held.
func (w *Watch) push(pieces []store.Piece) {
	if !w.queue.push(pieces) {
		w.source.lag()
	}
}

// Next waits for the next event. The event is valid until the next call of Next,
// NextBatch or Close; [Event.Clone] returns a copy to keep. An error other than the
// context's is permanent: ErrLagged if the watch was not read fast enough, ErrClosed after Close of the watch, the client or the server. If
// the context has ended, Next still returns an event that is already queued.
func (w *Watch) Next(ctx context.Context) (e Event, _ error) {
	if err := w.begin(); err != nil {
		return Event{}, err
	}
	for !w.step(&e) {
		if err := w.fetch(ctx); err != nil {
			w.finish()
			return Event{}, err
		}
	}
	w.finish()
	return e, nil
}

// NextBatch waits for events and calls f for each one that is queued, until f returns
// false; the remaining events stay queued. With many events it costs less than Next.
// Each event is valid during the call of f; [Event.Clone] returns a copy to keep. f must
// not call methods of the watch.
// Errors are those of Next; f may have been called before an error.
func (w *Watch) NextBatch(ctx context.Context, f func(Event) bool) error {
	if err := w.begin(); err != nil {
		return err
	}
	defer w.finish()
	var e Event
	for any := false; ; {
		for w.step(&e) {
			any = true
			if !f(e) {
				return nil
			}
		}
		more, err := w.advance()
		switch {
		case err != nil:
			return err
		case more:
			if err := ctx.Err(); err != nil {
				return err
			}
		case any:
			return nil
		default:
			if err := w.wait(ctx); err != nil {
				return err
			}
		}
	}
}

// Close closes the watch and frees its memory. A blocked call returns ErrClosed. Close
// may be called more than once; it returns nil.
func (w *Watch) Close() error {
	w.stop(ErrClosed)
	if w.use.Swap(watchClosed) == watchIdle {
		w.drop()
	}
	return nil
}

// stop ends the queue and removes the watch from its source.
func (w *Watch) stop(reason error) {
	w.source.unwatch(w)
	w.queue.stop(reason)
}

// begin acquires the right to fetch, and finish releases it. If the watch was closed in
// between, finish cleans up.
func (w *Watch) begin() error {
	switch {
	case w.use.CompareAndSwap(watchIdle, watchUsed):
		return nil
	case w.use.Load() == watchClosed:
		return ErrClosed
	}
	return errWatchBusy
}

func (w *Watch) finish() {
	if !w.use.CompareAndSwap(watchUsed, watchIdle) {
		w.drop()
	}
}

// drop releases the current item.
func (w *Watch) drop() {
	w.item.release()
	w.bytes = nil
}

// step stores the next event of the current item in e, and reports whether there was
// one.
func (w *Watch) step(e *Event) bool {
	if d := w.item.change; d != nil {
		return d.next(e, &w.subtrees)
	}
	for len(w.bytes) > 0 {
		r := kvmsg.Record(w.bytes)
		w.bytes = w.bytes[readEvent(e, w.bytes):]
		if w.subtrees.All() || w.subtrees.Contains(e.Key) {
			if e.Op == OpSet && len(e.Properties) > 0 {
				e.TTL = w.source.remaining(r)
			}
			return true
		}
	}
	return false
}

// fetch replaces the current item, which is used up, by the next one, and waits for it
// if necessary.
func (w *Watch) fetch(ctx context.Context) error {
	for {
		if more, err := w.advance(); more || err != nil {
			return err
		}
		if err := w.wait(ctx); err != nil {
			return err
		}
	}
}

// advance is fetch without waiting.
func (w *Watch) advance() (more bool, err error) {
	w.drop()
	it, ok, err := w.queue.pop()
	if err != nil {
		if errors.Is(err, ErrLagged) {
			w.stop(err) // so that nothing is pushed to it
		}
		return false, err
	}
	if !ok {
		return false, nil
	}
	w.item = it
	if it.change != nil {
		it.change.open()
	} else {
		w.bytes = it.piece.Wire()
	}
	return true, nil
}

// wait waits until the queue may have an item.
func (w *Watch) wait(ctx context.Context) error {
	select {
	case <-w.queue.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
