package queue

// The messages of a peer remain available to the application when the peer has
// gone. The queue of each peer is limited, but peers that connect, send and
// disconnect could fill the memory with their queues. So the queues of all peers
// that have gone are limited too, together by the limit of one peer: above it,
// messages from new peers wait until the application has received some of the old
// ones. Peers that have sent messages before are not affected.

// Leave records that the peer of a queue has gone for good.
func (in *Inbox) Leave(q *Inqueue) {
	in.lock()
	defer in.mu.Unlock()
	q.left = true
	if q.size.Messages > 0 {
		in.leftovers.add(q, q.size.Bytes)
	} else {
		in.clients.part(q)
	}
}

// leftovers are the messages of peers that have gone. Inbox.mu guards them.
type leftovers struct {
	bytes     int
	newcomers Gate // readers of new peers wait here while they are too many
}

// add counts further bytes in the queue of a peer that has gone.
func (l *leftovers) add(q *Inqueue, bytes int) {
	l.bytes += bytes
	if q.state != inGone {
		q.state = inGone
		l.bytes += leftPeer
	}
}

// forget updates the count after n was taken from the queue of a peer that has gone. Below
// low, new peers may go on.
func (l *leftovers) forget(q *Inqueue, n HWM, low int) {
	l.bytes -= n.Bytes
	if q.size.Messages == 0 {
		l.bytes -= leftPeer
		q.state = inKnown
	}
	if l.bytes < low {
		l.newcomers.Wake()
	}
}
