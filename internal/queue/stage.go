package queue

import (
	"sync"
	"sync/atomic"

	"clustermap/internal/invariants"
)

// Stage is a buffer that senders copy into. Stages are pooled, so that an idle
// connection holds none and a busy one does not allocate. A stage is the Owner of
// its bytes; each item that refers to them counts as one reference.
type Stage struct {
	Bytes []byte
	refs  atomic.Int32
}

var stages = sync.Pool{New: func() any { return new(Stage) }}

func NewStage() *Stage {
	s := stages.Get().(*Stage)
	s.refs.Store(1)
	return s
}

// Retain adds a reference.
func (s *Stage) Retain() { s.refs.Add(1) }

// Release releases a reference. The last one returns the stage to the pool.
func (s *Stage) Release() {
	if s.refs.Add(-1) > 0 {
		return
	}
	invariants.Poison(s.Bytes)
	s.Pool()
}

// Pool returns the stage to the pool.
func (s *Stage) Pool() {
	if cap(s.Bytes) <= keepStage {
		s.Bytes = s.Bytes[:0]
		stages.Put(s)
	}
}
