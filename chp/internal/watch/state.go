package watch

import (
	"sync/atomic"

	"clustermap/internal/store"
	"clustermap/internal/timer"
)

// State is a map at one moment, shared by the watches that
// report it. The last release releases the cut.
type State struct {
	of        *store.Map
	deadlines *timer.Deadlines
	cut       *store.Cut
	sequence  int64
	refs      atomic.Int32
}

// NewState makes a cut of a map. The caller must hold the lock of the map; using
// the view needs none.
func NewState(m *store.Map, d *timer.Deadlines, sequence int64) *State {
	s := &State{of: m, deadlines: d, cut: m.Cut(), sequence: sequence}
	s.refs.Store(1)
	return s
}

func (s *State) retain() *State {
	if s != nil {
		s.refs.Add(1)
	}
	return s
}

// Release releases the reference of the caller of NewState. A nil State has none.
func (s *State) Release() {
	if s != nil && s.refs.Add(-1) == 0 {
		s.cut.Release()
	}
}
