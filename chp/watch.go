package chp

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
)

// Watch reports the keys of a client's replica, or of some of its subtrees, and their
// changes: first an OpSet for every key of a consistent state, then OpSynced, then
// every change exactly once, in the server's order.
//
// After the client has fetched a new snapshot, from the same server or another, the
// watch reports the differences from what it has reported so far: an OpSet for each key
// that is new or has another value, and an OpDelete for each that is gone, with
// CauseResync. There is no second OpSynced.
//
// The events wait in a bounded queue (ClientOptions.WatchQueue). A watch that is not
// read fast enough ends with ErrLagged; it never skips an event. A watch keeps memory
// until it is closed.
//
// Only one goroutine at a time may fetch events; any goroutine may call Close.
type Watch struct {
	client   *Client
	subtrees subtrees
	queue    watchQueue
	fresh    bool // nothing was reported or queued yet; guarded by Client.mu

	use atomic.Uint32 // a watchUse: which goroutine owns item and bytes

	// Owned by the fetching goroutine while use is watchUsed.
	item  watchItem
	bytes []byte // of a piece, not yet reported
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
// ClientOptions.Subtrees; without arguments it watches all of them. The client need not
// be ACTIVE: the watch reports the present state, or the first snapshot if there is
// none yet. Watch returns a *SubtreeError for a malformed subtree, and
// ErrOutsideSubtrees for one of which the client replicates nothing.
func (c *Client) Watch(subtrees ...string) (*Watch, error) {
	for _, spec := range subtrees {
		if err := checkSubtree(spec); err != nil {
			return nil, err
		}
		if !c.subtrees.meets(spec) {
			return nil, ErrOutsideSubtrees
		}
	}
	w := &Watch{client: c, subtrees: newSubtrees(subtrees), fresh: true}
	w.queue.limit = c.opts.WatchQueue
	w.queue.wake = make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.ctx.Err() != nil {
		return nil, ErrClosed
	}
	// From here on the session's batches come after this cut.
	if state := c.state.Load(); state != nil {
		now := newStateView(state, c.sequence.Load())
		w.restart(nil, now)
		now.release()
	}
	c.watches = append(c.watches, w)
	return w, nil
}

// restart queues the replacement of the state before by the state after. Client.mu must
// be held.
func (w *Watch) restart(before, after *stateView) {
	d := &change{after: after.retain()}
	if w.fresh {
		w.fresh = false
		d.synced = true
	} else {
		d.before = before.retain()
	}
	if !w.queue.pushChange(d) {
		w.client.lagged.Add(1)
	}
}

// push queues a batch of updates. Client.mu must be held.
func (w *Watch) push(pieces []store.Piece) {
	if !w.queue.push(pieces) {
		w.client.lagged.Add(1)
	}
}

// Next waits for the next event. The event is valid until the next call of Next,
// NextBatch or Close. An error other than the context's is permanent: ErrLagged if the
// watch was not read fast enough, ErrClosed after Close of the watch or the client. If
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
// Each event is valid during the call of f, which must not call methods of the watch.
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

// stop ends the queue and removes the watch from its client's list.
func (w *Watch) stop(reason error) {
	c := w.client
	c.mu.Lock()
	if i := slices.Index(c.watches, w); i >= 0 {
		c.watches = slices.Delete(c.watches, i, i+1)
	}
	c.mu.Unlock()
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
		if w.subtrees.all() || w.subtrees.contains(e.Key) {
			if e.Op == OpSet && len(e.Properties) > 0 {
				e.TTL = w.client.state.Load().deadlines.remaining(r)
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
			w.stop(err) // so that Client.apply no longer pushes to it
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
