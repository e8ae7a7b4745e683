package queue

import (
	"time"

	"clustermap/internal/invariants"
	"clustermap/zmtp"
)

// Load holds the messages that a writer has taken, in the order in which they go out.
type Load struct {
	head    head
	queue   Wire
	Written int64 // bytes of it, if a connection broke

	Gathers bool // senders may add messages before they are taken; see Outbox.gather
	full    bool // the queue was full when it was taken

	// A PING is added when Beat ticks, which is nil without heartbeats.
	Beat   <-chan time.Time
	Ping   []byte
	Pinged bool // there is one
}

// Gather appends the bytes to write to bufs, in order.
func (l *Load) Gather(bufs [][]byte) [][]byte {
	if len(l.head.bytes) > 0 {
		bufs = append(bufs, l.head.bytes)
	}
	for i := range l.queue.Items {
		bufs = append(bufs, l.queue.Items[i].wire)
	}
	if staged := l.queue.staged(); len(staged) > 0 {
		bufs = append(bufs, staged)
	}
	return bufs
}

// remaining returns, in memory of their own, the messages of which nothing was written.
// One that was written in part is lost, and never sent twice (RFC 37 §1.3). Nothing of
// the head remains.
func (l *Load) remaining() (wire []byte, messages int) {
	skip := max(l.Written-int64(len(l.head.bytes)), 0)
	l.head.clear()
	decoder := zmtp.NewDecoder(zmtp.Limits{MaxMessage: -1, MaxFrames: -1, MaxCommand: -1})
	for _, b := range l.Gather(nil) {
		for len(b) > 0 {
			kind, n, err := decoder.Next(b)
			if err != nil || kind == zmtp.KindNeedMore {
				invariants.Assert(false, "something else than whole messages was queued")
				return wire, messages
			}
			if skip <= 0 {
				wire = append(wire, b[:n]...)
				if kind == zmtp.KindMessage {
					messages++
				}
			}
			skip -= int64(n)
			b = b[n:]
		}
	}
	return wire, messages
}

// Clear empties l after its contents were written, and keeps the buffers for reuse. No
// lock may be held.
func (l *Load) Clear() {
	l.queue.clear()
	l.head.clear()
	l.Written = 0
}
