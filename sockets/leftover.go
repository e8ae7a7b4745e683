package sockets

// The messages of a peer remain available to the application when the peer has
// gone. The queue of each peer is limited, but peers that connect, send and
// disconnect could fill the memory with their queues. So the queues of all peers
// that have gone are limited too, together by the limit of one peer: above it,
// messages from new peers wait until the application has received some of the old
// ones. Peers that have sent something before are not affected.

// leftPeer is approximately the memory, in addition to its messages, that is
// kept for a peer that has gone while some of its messages are queued.
const leftPeer = 3 << 10

// leave records that the peer of a queue has gone for good.
func (in *inbox) leave(q *inqueue) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if q.messages > 0 {
		q.gone = true
		in.leftovers += q.cost + leftPeer
	}
}

// fetched updates the count of leftover bytes after cost bytes were taken from
// a queue. mu must be held.
func (in *inbox) fetched(q *inqueue, cost int) {
	if !q.gone {
		return
	}
	in.leftovers -= cost
	if q.messages == 0 {
		in.leftovers -= leftPeer
		q.gone = false
	}
	if in.newcomers != nil && in.leftovers < in.limits.low().bytes {
		close(in.newcomers)
		in.newcomers = nil
	}
}

// admit waits until the messages of a new peer may be queued. It returns false
// if the socket or the connection ends first. mu must be held, and is held when
// it returns true.
func (in *inbox) admit(q *inqueue, gone <-chan struct{}) bool {
	for in.leftovers >= in.limits.bytes {
		if in.newcomers == nil {
			in.newcomers = make(chan struct{})
		}
		room := in.newcomers
		in.mu.Unlock()
		select {
		case <-room:
		case <-gone:
			return false
		case <-in.done:
			return false
		}
		in.mu.Lock()
	}
	q.known = true
	return true
}

// welcome is like admit, for a peer about which messages are queued even if it
// sends nothing.
func (in *inbox) welcome(q *inqueue, gone <-chan struct{}) bool {
	in.mu.Lock()
	if !in.admit(q, gone) {
		return false
	}
	in.mu.Unlock()
	return true
}

// isFull reports whether a queue has reached its high-water mark in messages.
func (in *inbox) isFull(q *inqueue) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return q.messages >= in.limits.messages
}
