// Package live is a map that others read while its owner changes it: what a server has
// published, or the replica of a client. It is replaced as a whole, or changed by updates, and
// has watches. It knows nothing of servers and clients.
package live

import (
	"sync"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/state"
	"clustermap/chp/internal/watch"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
)

// Map is such a map. The lock of its owner, who changes the state, makes a change atomic for
// cuts and watches; readers do not take it.
type Map struct {
	mu      sync.Locker                 // of the owner
	now     atomic.Pointer[state.State] // nil before the first Replace
	watches watch.List
}

// SetUp must be called before all other methods. watchQueue bounds the queue of each watch,
// in bytes.
func (m *Map) SetUp(mu sync.Locker, watchQueue int) {
	m.mu = mu
	m.watches.SetUp(mu, watchQueue, func(r kvmsg.Record) time.Duration { return m.Now().Deadlines.Remaining(r) })
}

// Now returns the present state, or nil if there is none yet. Readers may call the methods of
// its store that take no lock.
func (m *Map) Now() *state.State { return m.now.Load() }

// Sequence returns the sequence of the last update, or of the state if none has followed it.
func (m *Map) Sequence() int64 {
	if now := m.Now(); now != nil {
		return now.Last()
	}
	return 0
}

// Replace makes next the state. Watches get a cut of both states and compute the differences
// later, in their own goroutines. The lock must be held.
func (m *Map) Replace(next *state.State) {
	old := m.now.Swap(next)
	m.watches.Restart(func() *watch.State { return stateOf(old) }, func() *watch.State { return stateOf(next) })
}

// Install is Replace for a state that was received up to a sequence. It takes the lock.
func (m *Map) Install(next *state.State, sequence int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next.Copy(nil, nil, sequence)
	m.Replace(next)
}

func stateOf(s *state.State) *watch.State {
	if s == nil {
		return nil
	}
	return watch.NewState(&s.Store, &s.Deadlines, s.Place())
}

// Apply applies updates that have sequences to the state, which then has one, and queues them
// for the watches. It takes the lock, and does not allocate.
func (m *Map) Apply(wire []byte, spans []buf.Span, sequence int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watches.Push(m.now.Load().Copy(wire, spans, sequence))
}

// Advance records that the state has all updates up to a sequence. It takes the lock.
func (m *Map) Advance(sequence int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Load().Copy(nil, nil, sequence)
}

// Skipped records that no update has a sequence above one and up to another one. It takes the lock.
func (m *Map) Skipped(from, to int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Load().Skipped(from, to)
}

// Beat is called when the owner of a replica has heard that there is nothing newer than it has. It
// takes the lock.
func (m *Map) Beat() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Bookmark()
}

// Push queues updates that are in the state for the watches. The lock must be held.
func (m *Map) Push(pieces []store.Piece) { m.watches.Push(pieces) }

// Tidy lets the store free memory that it no longer needs, in a portion of some bytes. It
// reports whether there is more to do.
func (m *Map) Tidy(portion int) (more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now.Load().Store.Tidy(portion)
}

// Cut returns a cut of the present state with its sequence, which the caller must release.
// Its Cut is nil if there is no state yet.
func (m *Map) Cut() (c state.Cut) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.now.Load(); now != nil {
		c = now.Cut()
	}
	return c
}

// CutKey is Cut for a single key: see [store.Map.CutKey]. There must be a state.
func (m *Map) CutKey(key []byte) (c state.Cut, list []store.Position) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now.Load()
	c.Cut, list = now.Store.CutKey(key)
	c.Sequence, c.ID, c.Last, c.Deadlines = now.Last(), now.ID, now.Terms.Newest.Last, &now.Deadlines
	return c, list
}

// LogBytes returns the size of the store's log. There must be a state.
func (m *Map) LogBytes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now.Load().Store.LogBytes()
}

// CopyLasting copies the keys of the present state that have no time to live to another map,
// except for those of which that has something newer. It returns how many have none, and how
// many have one.
func (m *Map) CopyLasting(to *store.Map, newer func(key []byte) bool) (lasting, left int) {
	cut := m.Cut()
	if cut.Cut == nil {
		return 0, 0
	}
	defer cut.Release()
	cut.Records(func(r kvmsg.Record) bool {
		if kvmsg.TTLOf(r.Props()) == 0 {
			if lasting++; !newer(r.Key()) {
				to.Put(r.Key(), r.Seq(), r.UUID(), r.Props(), r.Value())
			}
		}
		return true
	})
	return lasting, cut.Len() - lasting
}

// Watch begins a watch.
func (m *Map) Watch(o watch.Options) (*watch.Feed, error) {
	return m.watches.Watch(o, func() *watch.State { return stateOf(m.Now()) })
}

// WatchSince begins a watch with what came after a sequence: see [watch.List.Since].
func (m *Map) WatchSince(o watch.Options, past func() (*store.Tail, int64)) (*watch.Feed, error) {
	return m.watches.Since(o, past)
}

// Clear removes what is queued for a watch, as if it began now, with what follows. It takes the lock.
func (m *Map) Clear(f *watch.Feed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f.Clear()
}

// Bookmark tells the watches that want it how far the map has come. The lock must be held.
func (m *Map) Bookmark() {
	if now := m.now.Load(); now != nil {
		m.watches.Bookmark(now.Place())
	}
}

// Watches returns the number of watches, and that of those that ended with ErrLagged.
func (m *Map) Watches() (open int, lagged uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.watches.Len(), m.watches.Lagged()
}

// Close ends all watches. The state stays readable.
func (m *Map) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watches.Close()
}
