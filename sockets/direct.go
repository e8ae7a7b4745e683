package sockets

// A request or a reply is alone: its sender has nothing to add before the answer
// to it. So REQ and REP write themselves what they queue in an empty outbox,
// instead of waking the connection's writer for it, which costs more than the
// write. What the kernel does not take at once is left to the writer.

// maxDirect is the most bytes that a sender writes itself.
const maxDirect = 16 << 10

// directWriter is the connection as senders write to it. While the outbox's
// mutex is held and the writer sleeps, or was never started, nobody else does.
type directWriter struct {
	attempt *attempt
	peer    *Peer
}

// newDirectWriter returns nil where senders are to leave all to the writer.
func newDirectWriter(w *writer) *directWriter {
	if !w.pipe.socket.pattern.traits().lockstep || w.codec != nil {
		return nil
	}
	a := newAttempt(&w.conn.stream)
	if a == nil {
		return nil
	}
	return &directWriter{a, w.peer}
}

// writeDirect writes what was just queued, if that is all there is and the
// kernel takes at least some of it. mu must be held.
func (o *outbox) writeDirect() bool {
	q := &o.queue
	idle := o.asleep || o.start != nil
	if !idle || len(q.items) != 1 || q.items[0].owner != nil || q.bytes > maxDirect || len(o.control)+len(o.rest) > 0 {
		return false
	}
	bytes := q.stage.bytes
	n := o.direct.attempt.write(bytes)
	if n == 0 {
		return false
	}
	o.direct.peer.messagesOut.Add(uint64(q.messages))
	o.direct.peer.bytesOut.Add(uint64(q.bytes))
	if n < len(bytes) {
		// Begun is as good as taken: if the connection breaks, the message is
		// lost (RFC 37, 1.3).
		o.rest = append(o.rest[:0], bytes[n:]...)
		o.rouse()
	}
	q.clear()
	q.rest()
	return true
}

// takeRest puts what is left of a message in front of control. mu must be held.
func (o *outbox) takeRest(control *[]byte) {
	*control = append(append((*control)[:0], o.rest...), o.control...)
	o.control, o.rest = o.control[:0], nil
}
