package queue

import "clustermap/zmtp"

// head is the bytes that go out before all queued messages, on the present connection or
// never: the first messages of a connection (subscriptions, those of Options.HelloMessage
// and Options.ProbeRouter), the rest of a message that a sender has begun to write
// itself, and PONGs.
type head struct {
	bytes    []byte
	messages int // in bytes, or the rest of one
	kept     int // bytes that are not to be dropped; behind them are PONGs
}

// add appends frames, which have the given number of messages.
func (h *head) add(frames []byte, messages int) {
	h.bytes = append(h.bytes, frames...)
	h.messages += messages
	h.kept = len(h.bytes)
}

// takeOver exchanges the bytes of an empty head for those of a stage.
func (h *head) takeOver(s *Stage, messages int) {
	h.bytes, s.Bytes = s.Bytes, h.bytes[:0]
	h.messages, h.kept = messages, len(h.bytes)
}

// pong appends the answer to a PING. When there is no room, the answers before it
// are dropped: the newest one is enough.
func (h *head) pong(context []byte) {
	if len(h.bytes)-h.kept >= maxPongs {
		h.bytes = h.bytes[:h.kept]
	}
	h.bytes = zmtp.AppendPong(h.bytes, context)
}

// clear empties the head.
func (h *head) clear() {
	if cap(h.bytes) > keepHead {
		(&Stage{Bytes: h.bytes}).Pool()
		h.bytes = nil
	}
	h.bytes, h.messages, h.kept = h.bytes[:0], 0, 0
}

// Precede adds frames, which have the given number of messages, to the head.
func (o *Outbox) Precede(frames []byte, messages int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.life != dead {
		o.head.add(frames, messages)
		o.wake()
	}
}

// Pong adds the answer to a PING to the head.
func (o *Outbox) Pong(context []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.life != dead {
		o.head.pong(context)
		o.wake()
	}
}
