package chp

import (
	"context"
	"errors"
	"sync"

	"clustermap/chp/internal/follow"
	"clustermap/chp/internal/subtree"
	"clustermap/chp/internal/watch"
	"clustermap/internal/option"
)

// WatchOptions say what a watch reports. The zero value is that of Watch without arguments.
type WatchOptions struct {
	// Subtrees are those to watch, as the arguments of [Client.Watch].
	Subtrees []string

	// Since makes the watch begin with the changes after this sequence, deletions among them, in
	// the order of the server, instead of the present state. Then comes OpSynced, and then
	// everything else. 0 means the present state. A program that has handled events up to
	// Event.Sequence, such as that of an OpBookmark, goes on there when it has restarted. The
	// server knows only so much of the past (ServerOptions.RetainBytes); otherwise the error is
	// ErrCompacted, as it is for a sequence that the map has never had.
	Since int64

	// NoInitial makes the watch begin with OpSynced: it reports changes only.
	NoInitial bool

	// Bookmarks makes the watch report OpBookmark.
	Bookmarks bool

	// Previous makes the watch tell, in Event.Previous, the value that a key had before. It
	// keeps a copy of the values of all keys that it watches. With Since, a key has no known
	// value before its first change.
	Previous bool
}

// ErrCompacted is the reason of a [CompactedError].
var ErrCompacted = follow.ErrCompacted

// CompactedError reports that a server does not know what came after WatchOptions.Since: that is
// before the oldest sequence that it remembers, or the map has never been at exactly that
// sequence, as after a failover in which it has lost updates. Oldest is the lowest sequence that
// can be asked for. A program that gets it reads the whole state again. It wraps [ErrCompacted].
type CompactedError = follow.CompactedError

func (o *WatchOptions) check(within subtree.Set) error {
	for _, spec := range o.Subtrees {
		if err := subtree.Check(spec); err != nil {
			return err
		}
		if !within.Overlaps(spec) {
			return outsideSubtrees(spec)
		}
	}
	if o.Since < 0 {
		return option.New("chp", "Since", "must not be negative")
	}
	return nil
}

func (o *WatchOptions) inner() watch.Options {
	quiet := o.NoInitial && !o.Previous // otherwise the values are needed
	return watch.Options{Subtrees: o.Subtrees, Bookmarks: o.Bookmarks, Quiet: quiet}
}

// WatchWith is Watch with options. With Since it asks the server what came after that sequence, on
// a connection of its own, and waits for the beginning of the answer: the error is a
// [*CompactedError] if there is none, ErrNoSync if the server cannot be asked, and that of
// [Client.WaitActive] if the context ends before the client is ACTIVE. If the connection breaks
// while the answer arrives, the watch asks again for the rest.
func (c *Client) WatchWith(ctx context.Context, o WatchOptions) (*Watch, error) {
	if err := o.check(c.subtrees); err != nil {
		return nil, err
	}
	if o.Since == 0 {
		return newWatchMore(&o, nil)(c.live.Watch(o.inner()))
	}
	if err := c.WaitActive(ctx); err != nil {
		return nil, err
	}
	in := o.inner()
	in.Quiet, in.Unmarked = true, true
	feed, err := c.live.Watch(in)
	if err != nil {
		return nil, err
	}
	past, err := c.follower.Past(ctx, o.Subtrees, o.Since, func() { c.live.Clear(feed) })
	if err != nil {
		feed.Close()
		return nil, c.waited(err)
	}
	return newWatchMore(&o, &pastOf{Past: past, client: c})(feed, nil)
}

// WatchWith is Watch with options. With Since, the error is a [*CompactedError] if the server does
// not know what came after that sequence.
func (s *Server) WatchWith(o WatchOptions) (*Watch, error) {
	if err := o.check(s.subtrees); err != nil {
		return nil, err
	}
	if o.Since == 0 {
		return newWatchMore(&o, nil)(s.live.Watch(o.inner()))
	}
	feed, oldest, err := s.sequencer.Watch(o.inner(), o.Since)
	if err == nil && feed == nil {
		err = &CompactedError{Since: o.Since, Oldest: oldest}
	}
	return newWatchMore(&o, nil)(feed, err)
}

// watchMore is what a watch does besides passing on the events of its feed.
type watchMore struct {
	feed   *watch.Feed
	silent bool // events before OpSynced are not reported

	closed chan struct{}
	once   sync.Once

	turn watch.Turn

	// Owned by whoever has the turn.
	past   *pastOf           // reported first, if not nil
	values map[string][]byte // of the keys, if they are wanted
}

// pastOf is what a client's watch begins with.
type pastOf struct {
	*follow.Past
	client *Client
}

// newWatchMore returns a function that makes a watch of a feed.
func newWatchMore(o *WatchOptions, past *pastOf) func(*watch.Feed, error) (*Watch, error) {
	return func(f *watch.Feed, err error) (*Watch, error) {
		w, err := newWatch(f, err)
		if err == nil && (past != nil || o.Previous) {
			w.more = &watchMore{feed: f, past: past, silent: o.NoInitial && o.Since == 0, closed: make(chan struct{})}
			if o.Previous {
				w.more.values = map[string][]byte{}
			}
		}
		return w, err
	}
}

// close ends a fetch, and frees what the watch has, now or when a goroutine that is fetching
// returns. It does not wait.
func (m *watchMore) close() {
	m.once.Do(func() { close(m.closed) })
	if m.turn.End() {
		m.free()
	}
}

func (m *watchMore) free() {
	m.leavePast()
	m.values = nil
}

// finish ends a turn.
func (m *watchMore) finish() {
	if m.turn.Finish() {
		m.free()
	}
}

func (m *watchMore) leavePast() {
	if m.past != nil {
		m.past.Close()
		m.past = nil
	}
}

// next is Watch.Next.
func (m *watchMore) next(ctx context.Context) (e Event, err error) {
	if err := m.turn.Begin(); err != nil {
		return Event{}, err
	}
	defer m.finish()
	for {
		if err := m.fetch(ctx, &e); err != nil {
			return Event{}, err
		}
		if m.admit(&e) {
			return e, nil
		}
	}
}

// nextBatch is Watch.NextBatch.
func (m *watchMore) nextBatch(ctx context.Context, f func(Event) bool) error {
	if err := m.turn.Begin(); err != nil {
		return err
	}
	defer m.finish()
	var e Event
	for any := false; ; {
		if m.past == nil {
			if any {
				ctx, cancel := context.WithCancel(ctx)
				cancel() // what is queued
				err := m.feedBatch(ctx, &e, f, &any)
				if errors.Is(err, context.Canceled) {
					err = nil
				}
				return err
			}
			if err := m.feedBatch(ctx, &e, f, &any); err != nil || any {
				return err
			}
			continue
		}
		if any && !m.past.Ready() {
			return nil
		}
		if err := m.fetch(ctx, &e); err != nil {
			return err
		}
		if m.admit(&e) {
			any = true
			if !f(e) {
				return nil
			}
		}
	}
}

func (m *watchMore) feedBatch(ctx context.Context, e *Event, f func(Event) bool, any *bool) error {
	return m.feed.NextBatch(ctx, (*watch.Event)(e), func() bool {
		if !m.admit(e) {
			return true
		}
		*any = true
		return f(*e)
	})
}

// fetch stores the next event.
func (m *watchMore) fetch(ctx context.Context, e *Event) error {
	if m.past == nil {
		return m.feed.Next(ctx, (*watch.Event)(e))
	}
	select {
	case <-m.closed:
		return ErrClosed
	default:
	}
	if m.past.Ready() {
		return m.fetchPast(ctx, ctx, e)
	}
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(m.past.client.follower.Context(), cancel)
	defer stop()
	go func() { // ends with this call
		select {
		case <-m.closed:
			cancel()
		case <-both.Done():
		}
	}()
	return m.fetchPast(ctx, both, e)
}

// fetchPast stores the next event of the past. both ends with ctx, and with the watch or its client.
func (m *watchMore) fetchPast(ctx, both context.Context, e *Event) error {
	r, err := m.past.Next(both)
	switch {
	case err != nil && ctx.Err() == nil && both.Err() != nil:
		return ErrClosed
	case err != nil:
		return err
	case r != nil:
		m.feed.Past((*watch.Event)(e), r)
		return nil
	}
	*e = Event{Op: OpSynced, Sequence: m.past.After()}
	m.feed.Skip(e.Sequence)
	m.leavePast()
	return nil
}

// admit notes the value of an event, and reports whether it is reported.
func (m *watchMore) admit(e *Event) bool {
	if m.values != nil {
		e.Previous = m.values[string(e.Key)]
		switch e.Op {
		case OpSet:
			m.values[string(e.Key)] = append([]byte(nil), e.Value...)
		case OpDelete:
			delete(m.values, string(e.Key))
		}
	}
	if !m.silent {
		return true
	}
	m.silent = e.Op != OpSynced
	return !m.silent
}
