package sockets

import (
	"slices"

	"clustermap/zmtp"
)

// outqueue is a sequence of whole messages: the items, and behind them what was
// copied to the stage since the last item was added.
type outqueue struct {
	items    []outitem
	stage    *stage // what is copied to at present, or nil
	from     int    // bytes of the stage that items refer to
	lent     int    // bytes of the items
	messages int
	back     hwm // the part that was put back by a connection that broke

	// While there are fewer messages than mark, and the stage has at most brim bytes
	// afterwards, a message needs no other check; see outbox.allow.
	mark, brim int
}

// outitem is a run of wire bytes and its owner, which is nil if the queue owns it
// alone.
type outitem struct {
	wire  []byte
	owner Owner
}

// lent reports whether the bytes are not the queue's own.
func (i *outitem) lent() bool {
	_, staged := i.owner.(*stage)
	return !staged && i.owner != nil
}

// release gives up the queue's reference.
func (i *outitem) release() {
	if i.owner != nil {
		i.owner.Release()
	}
}

// lendFrom is the size from which lending a run is cheaper than copying it: a
// vectored write costs more for many small pieces than the copy does.
const lendFrom = 4 << 10

// staged returns the bytes of the stage that are not in items.
func (q *outqueue) staged() []byte {
	if q.stage == nil {
		return nil
	}
	return q.stage.bytes[q.from:]
}

func (q *outqueue) bytes() int { return q.lent + len(q.staged()) }

func (q *outqueue) empty() bool { return len(q.items) == 0 && len(q.staged()) == 0 }

// begin returns the stage to append so many bytes to. A large stage is not grown:
// another one is begun.
func (q *outqueue) begin(bytes int) *stage {
	if s := q.stage; s != nil {
		size := len(s.bytes) + bytes
		if size <= fullStage && (q.from == 0 || size <= cap(s.bytes)) {
			return s
		}
		q.endStage()
	}
	if q.stage == nil {
		q.stage = newStage()
	}
	if s := q.stage; q.lent >= fullStage && cap(s.bytes) < fullStage {
		// The queue is long enough that this stage is likely to become full, too: it
		// need not grow step by step.
		s.bytes = make([]byte, 0, fullStage)
	}
	return q.stage
}

// endStage has the next bytes go to another stage, unless the present one is empty.
func (q *outqueue) endStage() {
	q.cut()
	if s := q.stage; s != nil && len(s.bytes) > 0 {
		q.stage, q.from = nil, 0
		s.Release()
	}
}

// cut makes an item of the staged bytes.
func (q *outqueue) cut() {
	if run := q.staged(); len(run) > 0 {
		q.stage.Retain()
		q.from = len(q.stage.bytes)
		q.append(run[:len(run):len(run)], q.stage)
	}
	q.mark = 0
}

func (q *outqueue) append(wire []byte, owner Owner) {
	q.items = append(q.items, outitem{wire, owner})
	q.lent += len(wire)
}

// lend adds messages, and takes over a reference of their owner.
func (q *outqueue) lend(wire []byte, messages int, owner Owner) {
	q.cut()
	q.append(wire, owner)
	q.messages += messages
}

// prepend puts messages in front of the others. It takes over wire.
func (q *outqueue) prepend(wire []byte, messages int) {
	q.items = slices.Insert(q.items, 0, outitem{wire: wire})
	q.lent += len(wire)
	q.messages += messages
	q.mark = 0
}

// keepLast drops all messages but the last one of those that were appended to the
// stage behind the given offset. If the queue had lent bytes before it began to
// conflate, everything stays, because they cannot be released with locks held.
func (q *outqueue) keepLast(before int) {
	for i := range q.items {
		if q.items[i].owner != nil {
			return
		}
	}
	bytes := q.stage.bytes
	last := before
	for at := before; at < len(bytes); {
		more := bytes[at]&zmtp.FlagMore != 0
		_, rest := zmtp.Message(bytes[at:]).Next()
		at = len(bytes) - len(rest)
		if !more && at < len(bytes) {
			last = at
		}
	}
	clear(q.items)
	q.items, q.lent, q.messages = q.items[:0], 0, 1
	q.stage.bytes = bytes[:copy(bytes, bytes[last:])]
}

// forget empties q after its references were handed on, and keeps the buffers.
func (q *outqueue) forget() {
	clear(q.items)
	*q = outqueue{items: q.items[:0], stage: q.stage}
}

// clear empties q, returns what was lent, and keeps the buffers for reuse. No
// lock may be held: an owner's Release is code that we do not know.
func (q *outqueue) clear() {
	for i := range q.items {
		q.items[i].release()
	}
	switch {
	case q.stage == nil:
	case q.from > 0:
		q.stage.Release()
		q.stage = nil
	default:
		q.stage.bytes = q.stage.bytes[:0]
	}
	q.forget()
}

// keepItems is the largest list of items that an idle connection keeps.
const keepItems = 64

// rest gives up the buffers of an empty queue, so that an idle connection holds none.
func (q *outqueue) rest() {
	if q.stage != nil {
		q.stage.pool()
		q.stage = nil
	}
	if cap(q.items) > keepItems {
		q.items = nil
	}
}
