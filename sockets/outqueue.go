package sockets

import (
	"slices"
	"sync"
	"sync/atomic"

	"clustermap/internal/invariants"
)

// outqueue is a sequence of whole messages: runs copied to the stage, and runs
// lent by an Owner, in the order of items.
type outqueue struct {
	stage    *stage // what is copied to at present, or nil
	items    []outitem
	messages int
	bytes    int
	back     hwm // how much of it was put back by a connection that broke
}

// stage is a buffer that senders copy into. Stages are pooled, so that an idle
// connection holds none and a busy one does not allocate. A full stage is lent
// to its queue, with itself as the Owner, and the next one is begun.
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

// outitem is the next size bytes of the stage, or, with an owner, lent.
type outitem struct {
	size  int
	lent  []byte
	owner Owner
}

// lendFrom is the size from which lending a run is cheaper than copying it: a
// vectored write costs more for many small pieces than the copy does.
const lendFrom = 4 << 10

func (q *outqueue) empty() bool { return len(q.items) == 0 }

// begin returns the stage to append to.
func (q *outqueue) begin() *stage {
	if q.stage == nil {
		q.stage = newStage()
	}
	return q.stage
}

// endStage has the next bytes go to another stage, if there are any in the
// present one.
func (q *outqueue) endStage() {
	s, at := q.stage, 0
	if s == nil || len(s.bytes) == 0 {
		return
	}
	for i := range q.items {
		if item := &q.items[i]; item.owner == nil {
			item.lent, item.owner = s.bytes[at:at+item.size:at+item.size], s
			at += item.size
			s.Retain()
		}
	}
	invariants.Assert(at == len(s.bytes), "all of a stage is queued")
	q.stage = nil
	s.Release()
}

// commit enters what was appended to the stage since it had so many bytes.
func (q *outqueue) commit(before, messages int) {
	n := len(q.stage.bytes) - before
	if last := len(q.items) - 1; last >= 0 && q.items[last].owner == nil {
		q.items[last].size += n
	} else {
		q.items = append(q.items, outitem{size: n})
	}
	q.messages += messages
	q.bytes += n
}

func (q *outqueue) lend(wire []byte, messages int, owner Owner) {
	owner.Retain()
	q.items = append(q.items, outitem{size: len(wire), lent: wire, owner: owner})
	q.messages += messages
	q.bytes += len(wire)
}

// prepend puts messages, which are copied, in front of the others.
func (q *outqueue) prepend(wire []byte, messages int) {
	st := q.begin()
	st.bytes = slices.Insert(st.bytes, 0, wire...)
	q.items = slices.Insert(q.items, 0, outitem{size: len(wire)})
	q.messages += messages
	q.bytes += len(wire)
}

// clear empties q, returns what was lent, and keeps the buffers for reuse. No
// lock may be held: an owner's Release is code that we do not know.
func (q *outqueue) clear() {
	for i := range q.items {
		if o := q.items[i].owner; o != nil {
			o.Release()
		}
		q.items[i] = outitem{}
	}
	q.items = q.items[:0]
	if q.stage != nil {
		q.stage.bytes = q.stage.bytes[:0]
	}
	q.messages, q.bytes, q.back = 0, 0, hwm{}
}

// keepItems is the largest list of items that an idle connection keeps.
const keepItems = 64

// rest gives the buffers of an empty queue up, so that an idle connection
// holds none.
func (q *outqueue) rest() {
	if q.stage != nil {
		q.stage.pool()
		q.stage = nil
	}
	if cap(q.items) > keepItems {
		q.items = nil
	}
}
