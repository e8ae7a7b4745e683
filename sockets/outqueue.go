package sockets

import (
	"sync"

	"clustermap/internal/invariants"
)

// outqueue is a sequence of whole messages: runs copied to the stage, and runs
// lent by an Owner, in the order of items.
type outqueue struct {
	stage    *stage // nil while nothing is copied
	items    []outitem
	messages int
	octets   int
}

// stage is a buffer that senders copy into. Stages are pooled, so that an idle
// connection holds none and a busy one does not allocate.
type stage struct{ octets []byte }

var stages = sync.Pool{New: func() any { return new(stage) }}

// keepStage is the largest stage that goes back to the pool.
const keepStage = 4 << 20

// Release gives a stage back whose octets were handed over (buf.Wrap).
func (s *stage) Release() {
	invariants.Poison(s.octets)
	if cap(s.octets) <= keepStage {
		s.octets = s.octets[:0]
		stages.Put(s)
	}
}

// outitem is the next size octets of the stage, or, with an owner, lent.
type outitem struct {
	size  int
	lent  []byte
	owner Owner
}

// lendFrom is the size from which lending a run is cheaper than copying it: a
// vectored write costs more for many small pieces than the copy does.
const lendFrom = 4 << 10

func (q *outqueue) empty() bool { return len(q.items) == 0 }

// begin returns the stage to append to, and its length.
func (q *outqueue) begin() (*stage, int) {
	if q.stage == nil {
		q.stage = stages.Get().(*stage)
	}
	return q.stage, len(q.stage.octets)
}

// commit enters what was appended to the stage since begin.
func (q *outqueue) commit(before, messages int) {
	n := len(q.stage.octets) - before
	if last := len(q.items) - 1; last >= 0 && q.items[last].owner == nil {
		q.items[last].size += n
	} else {
		q.items = append(q.items, outitem{size: n})
	}
	q.messages += messages
	q.octets += n
}

func (q *outqueue) lend(wire []byte, messages int, owner Owner) {
	owner.Retain()
	q.items = append(q.items, outitem{size: len(wire), lent: wire, owner: owner})
	q.messages += messages
	q.octets += len(wire)
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
		q.stage.octets = q.stage.octets[:0]
	}
	q.messages, q.octets = 0, 0
}

// keepItems is the largest list of items that an idle connection keeps.
const keepItems = 64

// rest gives the buffers of an empty queue up, so that an idle connection
// holds none.
func (q *outqueue) rest() {
	if q.stage != nil && cap(q.stage.octets) <= keepStage {
		stages.Put(q.stage)
	}
	q.stage = nil
	if cap(q.items) > keepItems {
		q.items = nil
	}
}
