package chp

import (
	"context"

	"clustermap/chp/internal/subtree"
	"clustermap/chp/internal/watch"
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
// new or was set again, and an OpDelete for each that is gone, with CauseResync.
// There is no second OpSynced.
//
// The events wait in a bounded queue (ClientOptions.WatchQueue, ServerOptions.WatchQueue). A watch that is not
// read fast enough ends with ErrLagged: the events in its queue are discarded, too, so no
// event is skipped between two that are reported. A watch keeps memory
// until it is closed.
//
// Only one goroutine at a time may fetch events; any goroutine may call Close.
type Watch struct {
	feed *watch.Feed
	more *watchMore // nil for most watches
}

func newWatch(f *watch.Feed, err error) (*Watch, error) {
	if err != nil {
		return nil, err
	}
	return &Watch{feed: f}, nil
}

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
		if !c.subtrees.Overlaps(spec) {
			return nil, outsideSubtrees(spec)
		}
	}
	return newWatch(c.live.Watch(watch.Options{Subtrees: subtrees}))
}

// Next waits for the next event. The event is valid until the next call of Next,
// NextBatch or Close; [Event.Clone] returns a copy to keep. An error other than the
// context's is permanent: ErrLagged if the watch was not read fast enough, ErrClosed after Close of the watch, the client or the server. If
// the context has ended, Next still returns an event that is already queued.
func (w *Watch) Next(ctx context.Context) (Event, error) {
	if w.more != nil {
		return w.more.next(ctx)
	}
	var e Event
	if err := w.feed.Next(ctx, (*watch.Event)(&e)); err != nil {
		return Event{}, err
	}
	return e, nil
}

// NextBatch waits for events and calls f for each one that is queued, until f returns
// false; the remaining events stay queued. With many events it costs less than Next.
// Each event is valid during the call of f; [Event.Clone] returns a copy to keep. f must
// not call methods of the watch.
// Errors are those of Next; f may have been called before an error.
func (w *Watch) NextBatch(ctx context.Context, f func(Event) bool) error {
	if w.more != nil {
		return w.more.nextBatch(ctx, f)
	}
	var e Event
	return w.feed.NextBatch(ctx, (*watch.Event)(&e), func() bool { return f(e) })
}

// Close closes the watch and frees its memory. A blocked call returns ErrClosed. Close
// may be called more than once; it returns nil.
func (w *Watch) Close() error {
	w.feed.Close()
	if w.more != nil {
		w.more.close()
	}
	return nil
}
