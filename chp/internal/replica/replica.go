// Package replica is a client's map: the state that readers see, replaced as a whole by a
// new snapshot and changed by updates, and its watches. It knows nothing of servers.
package replica

import (
	"sync"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/state"
	"clustermap/chp/internal/watch"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
	"clustermap/internal/timer"
)

// Map is a state of a replica: keys and values, and when they expire.
type Map struct {
	store.Map
	Deadlines *timer.Deadlines // nil if no key has a deadline
}

// NewMap returns an empty state, which Replica.Replace can make that of a replica.
func NewMap(o store.Options, d *timer.Deadlines) *Map {
	m := &Map{Deadlines: d}
	m.SetUp(o)
	return m
}

// Replica is a client's map. One goroutine at a time may call Replace, Apply and Tidy;
// the other methods are safe for concurrent use.
type Replica struct {
	now      atomic.Pointer[Map] // nil until the first snapshot is complete
	sequence atomic.Int64

	// mu makes applying a batch atomic for cuts and watches. Writers of the store hold it;
	// readers do not.
	mu      sync.Mutex
	watches watch.List
	pieces  []store.Piece // scratch
}

// SetUp must be called before all other methods. watchQueue bounds the queue of each watch,
// in bytes.
func (r *Replica) SetUp(watchQueue int) {
	r.watches.SetUp(&r.mu, watchQueue, func(u kvmsg.Record) time.Duration { return r.Now().Deadlines.Remaining(u) })
}

// Now returns the present state, or nil before the first snapshot. Readers may call the
// methods of the store that take no lock.
func (r *Replica) Now() *Map { return r.now.Load() }

// Sequence returns the sequence of the last update, or of the snapshot if no update has
// followed it.
func (r *Replica) Sequence() int64 { return r.sequence.Load() }

// Replace makes next the state of the replica. Watches get a cut of both states and compute
// the differences later, in their own goroutines.
func (r *Replica) Replace(next *Map, sequence int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.now.Load()
	r.now.Store(next)
	r.sequence.Store(sequence)
	r.watches.Restart(func() *watch.State { return stateOf(old, 0) }, r.state)
}

// state returns the present state for watches, or nil. mu must be held.
func (r *Replica) state() *watch.State { return stateOf(r.Now(), r.Sequence()) }

func stateOf(m *Map, sequence int64) *watch.State {
	if m == nil {
		return nil
	}
	return watch.NewState(&m.Map, m.Deadlines, sequence)
}

// Apply applies a batch of KVPUBs in canonical form, of which the last has a sequence, and
// queues it for the watches. It does not allocate.
func (r *Replica) Apply(wire []byte, spans []buf.Span, sequence int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now.Load()
	now.Deadlines.Apply(wire, spans, 0, timer.Now())
	r.pieces = now.Apply(wire, spans, 0, r.pieces[:0])
	r.sequence.Store(sequence)
	r.watches.Push(r.pieces)
}

// Tidy lets the store free memory that it no longer needs, in a portion of some bytes. It
// reports whether there is more to do.
func (r *Replica) Tidy(portion int) (more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now.Load().Tidy(portion)
}

// Tidied reports whether Tidy has nothing left to do.
func (r *Replica) Tidied() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now.Load().Tidied()
}

// Cut returns a cut of the present state with its sequence, which the caller must release.
// Its Cut is nil before the first snapshot.
func (r *Replica) Cut() state.Cut {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now.Load()
	if now == nil {
		return state.Cut{}
	}
	c := now.Cut()
	c.Sequence = r.Sequence()
	return state.Cut{Cut: c, Deadlines: now.Deadlines}
}

// CopyLasting copies the keys of the present state that have no time to live to another map,
// and returns how many have none, and how many have one.
func (r *Replica) CopyLasting(to *store.Map) (copied, left int) {
	cut := r.Cut()
	if cut.Cut == nil {
		return 0, 0
	}
	defer cut.Release()
	cut.Records(func(u kvmsg.Record) bool {
		if kvmsg.TTLOf(u.Props()) == 0 {
			to.Put(u.Key(), u.Seq(), u.UUID(), u.Props(), u.Value())
			copied++
		}
		return true
	})
	return copied, cut.Len() - copied
}

// Watch begins to watch some subtrees, which are valid: the present state, or the first one
// if there is none yet, and all changes.
func (r *Replica) Watch(subtrees []string) (*watch.Feed, error) {
	return r.watches.Watch(subtrees, r.state)
}

// Watches returns the number of watches, and that of those that ended with ErrLagged.
func (r *Replica) Watches() (open int, lagged uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watches.Len(), r.watches.Lagged()
}

// Close ends all watches. The state stays readable.
func (r *Replica) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watches.Close()
}
