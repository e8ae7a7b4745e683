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

// stages are unused ones: large ones apart, so that few bytes do not occupy them.
var stages, largeStages = newStages(), newStages()

func newStages() *sync.Pool { return &sync.Pool{New: func() any { return new(Stage) }} }

// NewStage returns an empty stage.
func NewStage() *Stage { return newStage(0) }

// newStage returns an empty stage for the given number of bytes and more.
func newStage(bytes int) *Stage {
	pool := stages
	if bytes > largeStage {
		pool = largeStages
	}
	s := pool.Get().(*Stage)
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
	pool := stages
	switch size := cap(s.Bytes); {
	case size > keepStage:
		return
	case size > largeStage:
		pool = largeStages
	}
	s.Bytes = s.Bytes[:0]
	pool.Put(s)
}
