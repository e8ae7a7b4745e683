package queue

// The messages of a peer remain available to the application when the peer has
// gone. The queue of each peer is limited, but peers that connect, send and
// disconnect could fill the memory with their queues. So the queues of all peers
// that have gone are limited too, together by the limit of one peer: above it,
// messages from new peers wait until the application has received some of the old
// ones. Peers that have sent messages before are not affected.

// leftPeer is approximately the memory, in addition to its messages, that is
// kept for a peer that has gone while some of its messages are queued.
const leftPeer = 3 << 10

// Leave records that the peer of a queue has gone for good.
func (in *Inbox) Leave(q *Inqueue) {
	in.mu.Lock()
	defer in.mu.Unlock()
	q.left = true
	if q.size.Messages > 0 {
		q.state = inGone
		in.leftovers += q.size.Bytes + leftPeer
	} else {
		in.part(q)
	}
}

// forget updates the count of leftovers after n was taken from the queue of a peer
// that has gone. mu must be held.
func (in *Inbox) forget(q *Inqueue, n HWM) {
	in.leftovers -= n.Bytes
	if q.size.Messages == 0 {
		in.leftovers -= leftPeer
		q.state = inKnown
	}
	if in.leftovers < in.limits.Low().Bytes {
		in.newcomers.Wake()
	}
}
