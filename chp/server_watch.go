package chp

import (
	"slices"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/state"
	"clustermap/chp/internal/subtree"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
)

// Watch begins to watch some subtrees of the map in the server's own process; without
// arguments it watches the whole map. It reports the present state and then every
// change, as [Client.Watch] does. Watch can be called before Serve. It returns a
// *SubtreeError for a malformed subtree, and ErrClosed after Close.
//
// An update is reported when it is published, so an update that waits for the log on
// disk or for the other server of a pair is not reported before that. Deletions by a
// client or by Server.Delete have CauseDeleted, those of expired keys CauseExpired.
//
// On a server of a pair a watch continues when the server becomes active or passive. A
// passive server reports the active one's updates as they arrive. When it replaces its
// map by a copy of the active one's, the watch reports the differences with CauseResync.
//
// The events wait in a queue that ServerOptions.WatchQueue bounds. The server does not
// wait for a watch: one that is not read fast enough ends with ErrLagged. All watches
// end with ErrClosed when the server closes.
func (s *Server) Watch(subtrees ...string) (*Watch, error) {
	for _, spec := range subtrees {
		if err := subtree.Check(spec); err != nil {
			return nil, err
		}
	}
	w := newWatch(s, subtrees, s.opts.WatchQueue)
	q := &s.sequencer
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, ErrClosed
	}
	now := newStateView(q.state.Store, &q.state.Deadlines, q.state.Last())
	w.restart(nil, now)
	now.release()
	q.watches.list = append(q.watches.list, w)
	return w, nil
}

// watchers are the watches of a server's own process. The sequencer's mutex guards
// them, except for lagged.
type watchers struct {
	list   []*Watch
	lagged atomic.Uint64 // watches that ended with ErrLagged
}

// push queues a batch of updates that are published now.
func (l *watchers) push(pieces []store.Piece) {
	for _, w := range l.list {
		w.push(pieces)
	}
}

// restart queues the replacement of the map old, which has no writer any more, by
// another one.
func (l *watchers) restart(old, now *state.State) {
	if len(l.list) == 0 {
		return
	}
	before, after := newStateView(old.Store, &old.Deadlines, 0), newStateView(now.Store, &now.Deadlines, now.Last())
	for _, w := range l.list {
		w.restart(before, after)
	}
	before.release()
	after.release()
}

// remove removes a watch, if it is there.
func (l *watchers) remove(w *Watch) {
	if i := slices.Index(l.list, w); i >= 0 {
		l.list = slices.Delete(l.list, i, i+1)
	}
}

// stop ends all watches with ErrClosed.
func (l *watchers) stop() {
	for _, w := range l.list {
		w.queue.stop(ErrClosed)
	}
	l.list = nil
}

// unwatch, lag and remaining make a Server a watchSource.
func (s *Server) unwatch(w *Watch) {
	s.sequencer.mu.Lock()
	defer s.sequencer.mu.Unlock()
	s.sequencer.watches.remove(w)
}

func (s *Server) lag() { s.sequencer.watches.lagged.Add(1) }

func (s *Server) remaining(r kvmsg.Record) (ttl time.Duration) {
	return s.sequencer.current.Load().Deadlines.Remaining(r)
}
