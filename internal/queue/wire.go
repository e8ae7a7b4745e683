package queue

import (
	"encoding/binary"
	"slices"

	"clustermap/internal/buf"
	"clustermap/zmtp"
)

// Wire is a sequence of whole messages: the items, and behind them the bytes copied to
// the stage since the last item was added.
type Wire struct {
	Items    []Item
	stage    *Stage // for the next copied bytes, or nil
	from     int    // bytes of the stage that items refer to
	lent     int    // bytes of the items
	Messages int
	back     HWM // the part that was put back by a connection that broke

	// While there are fewer messages than mark, and the stage has at most brim bytes
	// afterwards, a message needs no other check; see Outbox.allow.
	mark, brim int
}

// Item is a run of wire bytes and its owner, which is nil if the queue owns it
// alone.
type Item struct {
	wire  []byte
	owner Owner
}

// Owner counts the references to bytes that a queue refers to. Both methods must be
// safe for concurrent use. Retain is called with locks held, Release with none.
type Owner interface {
	Retain()
	Release()
}

func (i *Item) release() {
	if i.owner != nil {
		i.owner.Release()
	}
}

// Chunk returns a chunk that begins with the bytes and takes over the reference to
// them, and their number. If they may be changed, bytes that were lent to the queue are
// copied.
func (i *Item) Chunk(change bool) (*buf.Chunk, int) {
	if _, staged := i.owner.(*Stage); change && !staged && i.owner != nil {
		c := buf.Get(len(i.wire))
		copy(c.Data(), i.wire)
		i.release()
		return c, len(i.wire)
	}
	return buf.Wrap(i.wire, i.owner), len(i.wire)
}

// staged returns the bytes of the stage that are not in items.
func (q *Wire) staged() []byte {
	if q.stage == nil {
		return nil
	}
	return q.stage.Bytes[q.from:]
}

// Bytes returns the size of the messages.
func (q *Wire) Bytes() int { return q.lent + len(q.staged()) }

func (q *Wire) empty() bool { return len(q.Items) == 0 && len(q.staged()) == 0 }

// begin returns the stage for the given number of further bytes, which must not be less than those
// that are appended, and the number that it holds. A large stage is not grown: another one is
// begun, unless the bytes have to be in the same. So a stage goes back to the pool that the next
// one for as many bytes comes from: stages that nobody takes would be more with each collection.
func (q *Wire) begin(bytes int, same bool) (*Stage, int) {
	if s := q.stage; s != nil {
		size := len(s.Bytes) + bytes
		if same || size <= FullStage && (q.from == 0 || size <= cap(s.Bytes)) {
			return s, len(s.Bytes)
		}
		q.endStage()
	}
	if q.stage == nil {
		q.stage = newStage(bytes)
	}
	if s := q.stage; cap(s.Bytes) < max(bytes, FullStage) && (bytes > FullStage || q.lent >= FullStage) {
		// It need not grow step by step: either this message alone is so large, or the queue is long
		// enough that this stage is likely to become full, too.
		s.Bytes = make([]byte, 0, max(bytes, FullStage))
	}
	return q.stage, 0
}

// endStage has the next bytes go to another stage, unless the present one is empty.
func (q *Wire) endStage() {
	q.cut()
	if s := q.stage; s != nil && len(s.Bytes) > 0 {
		q.stage, q.from = nil, 0
		s.Release()
	}
}

// cut makes an item of the staged bytes.
func (q *Wire) cut() {
	if run := q.staged(); len(run) > 0 {
		q.stage.Retain()
		q.from = len(q.stage.Bytes)
		q.append(run[:len(run):len(run)], q.stage)
	}
	q.mark = 0
}

func (q *Wire) append(wire []byte, owner Owner) {
	q.Items = append(q.Items, Item{wire, owner})
	q.lent += len(wire)
}

// lend adds messages, and takes over a reference of their owner.
func (q *Wire) lend(wire []byte, messages int, owner Owner) {
	q.cut()
	q.append(wire, owner)
	q.Messages += messages
}

// prepend puts messages in front of the others. It takes over wire.
func (q *Wire) prepend(wire []byte, messages int) {
	q.Items = slices.Insert(q.Items, 0, Item{wire: wire})
	q.lent += len(wire)
	q.Messages += messages
	q.mark = 0
}

// keepLast drops all messages but the last one of those that were appended to the
// stage behind the given offset. If items have owners, which were queued before the
// queue began to conflate, all items stay, because owners cannot be released with
// locks held: then keepLast drops only messages staged since.
func (q *Wire) keepLast(before int) {
	bytes := q.stage.Bytes
	last := before
	for at := before; at < len(bytes); {
		at = MessageEnd(bytes, at)
		if at < 0 {
			break // not whole messages, as SendWire requires
		}
		if at < len(bytes) {
			last = at
		}
	}
	if slices.ContainsFunc(q.Items, func(i Item) bool { return i.owner != nil }) {
		for at := q.from; at >= 0 && at < last; at = MessageEnd(bytes, at) {
			if bytes[at]&zmtp.FlagCommand == 0 {
				q.Messages--
			}
		}
	} else {
		clear(q.Items)
		q.Items, q.lent, q.Messages = q.Items[:0], 0, 1
	}
	q.stage.Bytes = bytes[:q.from+copy(bytes[q.from:], bytes[last:])]
}

// Forget empties q after its references were handed on, and keeps the buffers.
func (q *Wire) Forget() {
	clear(q.Items)
	*q = Wire{Items: q.Items[:0], stage: q.stage}
}

// clear empties q, releases the lent bytes, and keeps the buffers for reuse. No lock may
// be held: an owner's Release is code that we do not know.
func (q *Wire) clear() {
	for i := range q.Items {
		q.Items[i].release()
	}
	switch {
	case q.stage == nil:
	case q.from > 0:
		q.stage.Release()
		q.stage = nil
	default:
		q.stage.Bytes = q.stage.Bytes[:0]
	}
	q.Forget()
}

// Drop is clear, and gives up the buffers too.
func (q *Wire) Drop() {
	q.clear()
	q.rest()
}

// rest gives up the buffers of an empty queue, so that an idle connection holds none.
func (q *Wire) rest() {
	q.mark = 0
	if q.stage != nil {
		q.stage.Pool()
		q.stage = nil
	}
	if cap(q.Items) > keepItems {
		q.Items = nil
	}
}

// MessageEnd returns the end of the message at offset at of wire, or -1 if it
// is incomplete. Unlike a decoder it trusts its input, which comes from the
// caller or has been decoded before.
func MessageEnd(wire []byte, at int) int {
	for at+2 <= len(wire) {
		flags, size := wire[at], uint64(wire[at+1])
		if flags&zmtp.FlagLong == 0 {
			at += 2
		} else {
			if at+9 > len(wire) {
				return -1
			}
			size = binary.BigEndian.Uint64(wire[at+1:])
			at += 9
		}
		if size > uint64(len(wire)-at) {
			return -1
		}
		at += int(size)
		if flags&zmtp.FlagMore == 0 {
			return at
		}
	}
	return -1
}
