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
