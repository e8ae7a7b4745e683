package sockets

import "clustermap/internal/link"

// A request or a reply is alone: its sender has nothing to add before the answer
// to it. So REQ and REP write themselves what they queue in an empty outbox,
// instead of waking the connection's writer for it, which costs more than the
// write. What the kernel does not take at once is left to the writer.

// maxDirect is the most bytes that a sender writes itself.
const maxDirect = 16 << 10

// directWriter is the connection as senders write to it. While the outbox's
// mutex is held and the drain is not at work, nobody else does.
type directWriter struct {
	attempt *link.Attempt
	peer    *Peer
}

// newDirectWriter returns nil where senders are to leave all to the writer.
func newDirectWriter(w *writer) *directWriter {
	if !w.pipe.socket.pattern.traits().lockstep || w.codec != nil {
		return nil
	}
	a := link.NewAttempt(&w.conn.stream)
	if a == nil {
		return nil
	}
	return &directWriter{a, w.peer}
}

// writeDirect writes what was just queued, if that is all there is and the
// kernel takes at least some of it. mu must be held.
func (o *outbox) writeDirect() bool {
	q := &o.queue
	if o.drain <= working || len(o.head.bytes) > 0 || len(q.items) > 0 || len(q.staged()) > maxDirect {
		return false
	}
	bytes := q.stage.bytes
	n := o.direct.attempt.Write(bytes)
	if n == 0 {
		return false
	}
	o.direct.peer.bytesOut.Add(uint64(len(bytes)))
	if n < len(bytes) {
		// Begun is as good as taken: if the connection breaks, the message is
		// lost (RFC 37, 1.3). The writer counts it.
		o.head.add(bytes[n:], q.messages)
		o.rouse()
	} else {
		o.direct.peer.messagesOut.Add(uint64(q.messages))
	}
	q.clear()
	q.rest()
	return true
}
