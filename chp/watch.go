package chp

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
)

// Watch reports what is in a client's replica, or in some subtrees of it, and
// what changes there: first an OpSet for every key of one moment, then OpSynced,
// then every change once and in the server's order.
//
// When the client has taken a new snapshot, from the same server or another,
// the watch reports the difference to what it has reported so far: an OpSet for
// each key that is new or has another value, an OpDelete for each that is gone,
// with [CauseResync]. There is no second OpSynced.
//
// The events wait in a queue of bounded size (ClientOptions.WatchQueue). A watch
// that is not read fast enough ends with ErrLagged rather than miss something.
// A watch holds on to memory until it is closed.
//
// One goroutine at a time may fetch events; Close may be called from any.
type Watch struct {
	client   *Client
	subtrees subtrees
	queue    watchQueue
	fresh    bool // nothing reported yet, and no state to report; guarded by Client.mu

	use atomic.Uint32 // a watchUse: who may touch item and bytes

	// Owned by the fetching goroutine while use says so.
	item  watchItem
	bytes []byte // of a piece, not yet reported
}

// States of Watch.use.
const (
	watchIdle   uint32 = iota
	watchUsed          // a goroutine is fetching
	watchClosed        // nobody may begin to; one that is fetching cleans up
)

// errWatchBusy is returned to the second of two goroutines.
var errWatchBusy = errors.New("chp: another goroutine is fetching events of this watch")

// Watch begins to watch some of the client's subtrees, each given as in
// ClientOptions.Subtrees; none means all. The client need not be ACTIVE: what it
// has is reported, and if it has nothing yet, what the first snapshot brings. It
// returns a *SubtreeError for a malformed subtree, and ErrOutsideSubtrees for
// one of which the client keeps nothing.
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
		now := freeze(state, c.sequence.Load())
		w.restart(nil, now)
		now.release()
	}
	c.watches = append(c.watches, w)
	return w, nil
}

// restart tells the watch that the state before was replaced by after. Client.mu
// must be held.
func (w *Watch) restart(before, after *frozen) {
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

// push hands the watch a batch of updates. Client.mu must be held.
func (w *Watch) push(pieces []store.Piece) {
	if !w.queue.push(pieces) {
		w.client.lagged.Add(1)
	}
}

// Next waits for the next event. The event is lent: it is valid until the next
// call of Next, NextBatch or Close. After an error other than the context's no
// event will come: ErrLagged if the watch was not read fast enough, ErrClosed
// after Close of the watch or the client. With a context that has ended it returns
// an event that is there, and does not wait.
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

// NextBatch waits for events and calls f for those that are there, until f
// returns false; the events after that are for the next call. It costs less
// than Next where there are many. Each event is valid during its call of f, in
// which f must not call the watch. The error is as for Next; f may have been
// called before.
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

// Close ends the watch and gives back its memory. A call that waits returns
// ErrClosed. Close may be called more than once; it returns nil.
func (w *Watch) Close() error {
	w.stop(ErrClosed)
	if w.use.Swap(watchClosed) == watchIdle {
		w.drop()
	}
	return nil
}

// stop ends the queue and takes the watch off its client's list.
func (w *Watch) stop(reason error) {
	c := w.client
	c.mu.Lock()
	if i := slices.Index(c.watches, w); i >= 0 {
		c.watches = slices.Delete(c.watches, i, i+1)
	}
	c.mu.Unlock()
	w.queue.stop(reason)
}

// begin takes the right to fetch, finish gives it back. If the watch is closed
// in between, it falls to finish to clean up.
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

// drop gives back the item at hand.
func (w *Watch) drop() {
	w.item.release()
	w.bytes = nil
}

// step puts the next event of the item at hand into e, if there is one.
func (w *Watch) step(e *Event) bool {
	if d := w.item.change; d != nil {
		return d.next(e, &w.subtrees)
	}
	for len(w.bytes) > 0 {
		r := kvmsg.Record(w.bytes)
		w.bytes = w.bytes[readEvent(e, w.bytes):]
		if w.subtrees.all() || w.subtrees.holds(e.Key) {
			if e.Op == OpSet && len(e.Properties) > 0 {
				e.TTL = w.client.state.Load().deadlines.left(r)
			}
			return true
		}
	}
	return false
}

// fetch exchanges the item at hand, which is used up, for the next one, and
// waits for it if need be.
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
	it, ok, err := w.queue.take()
	if err != nil {
		if errors.Is(err, ErrLagged) {
			w.stop(err) // no more batches need be offered to it
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

// wait waits until the queue may have something.
func (w *Watch) wait(ctx context.Context) error {
	select {
	case <-w.queue.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
