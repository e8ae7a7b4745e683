package chp

import (
	"clustermap/chp/internal/state"
	"slices"
	"sync/atomic"
	"time"

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
// These can undo an update of the time just before this server stopped being active,
// which the other server never received.
//
// The events wait in a queue that ServerOptions.WatchQueue bounds. The server does not
// wait for a watch: one that is not read fast enough ends with ErrLagged. All watches
// end with ErrClosed when the server closes.
func (s *Server) Watch(subtrees ...string) (*Watch, error) {
	for _, spec := range subtrees {
		if err := checkSubtree(spec); err != nil {
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
	l := &localWatch{Watch: w}
	if !q.held.empty() { // the last held batch ends with now.seq
		l.initial = now // push queues it when everything in it is published
	} else {
		w.restart(nil, now)
		now.release()
	}
	q.watches.list = append(q.watches.list, l)
	return w, nil
}

// watchers are the watches of a server's own process. The sequencer's mutex guards
// them, except for lagged.
type watchers struct {
	list   []*localWatch
	lagged atomic.Uint64 // watches that ended with ErrLagged
}

// localWatch is a watch of a server. initial is the state with which it begins, until
// everything in that state is published; then nil.
type localWatch struct {
	*Watch
	initial *stateView
}

// push queues a batch of updates that are published now. last is the sequence of the
// last one.
func (l *watchers) push(last int64, pieces []store.Piece) {
	for _, w := range l.list {
		if w.initial == nil {
			w.push(pieces)
		} else if last >= w.initial.seq { // this batch is the last one in it
			w.start()
		}
	}
}

// start queues the initial state.
func (w *localWatch) start() {
	w.restart(nil, w.initial)
	w.initial.release()
	w.initial = nil
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
	i := slices.IndexFunc(l.list, func(l *localWatch) bool { return l.Watch == w })
	if i < 0 {
		return
	}
	l.list[i].initial.release()
	l.list = slices.Delete(l.list, i, i+1)
}

// stop ends all watches with ErrClosed.
func (l *watchers) stop() {
	for _, w := range l.list {
		w.initial.release()
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
