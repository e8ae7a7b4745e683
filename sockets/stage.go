package sockets

import (
	"sync"
	"sync/atomic"

	"clustermap/internal/invariants"
)

// stage is a buffer that senders copy into. Stages are pooled, so that an idle
// connection holds none and a busy one does not allocate. A stage is the Owner of
// its bytes; each item that refers to them counts as one reference.
type stage struct {
	bytes []byte
	refs  atomic.Int32
}

var stages = sync.Pool{New: func() any { return new(stage) }}

const (
	// fullStage is how far a stage is filled, unless one message is larger: as
	// much as one write is good for, and little enough to be in the cache still
	// when it is written.
	fullStage = 512 << 10
	// keepStage is the largest stage that goes back to the pool.
	keepStage = 4 << 20
)

func newStage() *stage {
	s := stages.Get().(*stage)
	s.refs.Store(1)
	return s
}

// Retain keeps a stage whose bytes were handed over.
func (s *stage) Retain() { s.refs.Add(1) }

// Release gives it back.
func (s *stage) Release() {
	if s.refs.Add(-1) > 0 {
		return
	}
	invariants.Poison(s.bytes)
	s.pool()
}

// pool gives the stage to whoever needs one next.
func (s *stage) pool() {
	if cap(s.bytes) <= keepStage {
		s.bytes = s.bytes[:0]
		stages.Put(s)
	}
}
