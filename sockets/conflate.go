package sockets

import (
	"clustermap/zmtp"
)

// conflates reports whether Options.Conflate applies to the socket.
func (s *socket) conflates() bool {
	switch s.kind {
	case zmtp.PUSH, zmtp.PULL, zmtp.PUB, zmtp.SUB, zmtp.DEALER:
		return s.opts.Conflate
	}
	return false
}

// commit enters what was appended to the stage. mu must be held.
func (o *outbox) commit(before, messages int) {
	o.queue.commit(before, messages)
	if o.conflate && messages > 0 {
		o.queue.keepLast(before)
	}
}

// keepLast drops all messages that were appended to the stage after the given
// offset, except the last. If bytes were lent before the queue began to
// conflate, everything stays, because they cannot be released with locks held.
func (q *outqueue) keepLast(before int) {
	for _, item := range q.items {
		if item.owner != nil {
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
	n := copy(bytes, bytes[last:])
	q.stage.bytes = bytes[:n]
	q.items = append(q.items[:0], outitem{size: n})
	q.messages, q.bytes = 1, n
}

// keepLast drops everything that is queued in q, and all messages of b except
// the last, which will be queued. mu must be held.
func (in *inbox) keepLast(q *inqueue, b *Batch) {
	dropped := len(b.spans) - 1
	if dropped < 0 {
		return
	}
	b.spans[0] = b.spans[dropped]
	b.spans = b.spans[:1]
	for q.batches.Len() > 0 {
		item := q.batches.Pop()
		dropped += len(item.spans) - item.next
		item.chunk.Release()
		in.recycle(item.spans)
	}
	q.messages, q.cost = 0, 0
	if b.peer != nil { // as in tests of the inbox alone
		b.peer.discarded.Add(uint64(dropped))
	}
}
