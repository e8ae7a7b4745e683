package sockets

// What a peer has sent stays for the application when the peer has gone. Each
// peer's queue is bounded, but peers that come, send and go could fill the memory
// with queues. So what those leave that are gone is bounded as well, together as
// for one that is there: while it is more, what comes from new peers waits until
// the application has caught up. Peers that were heard before are not held up.

// leftPeer is about what is kept in memory of a peer that has gone, as long as
// something of it is queued, besides that.
const leftPeer = 3 << 10

// leave says that the peer of a queue has gone for good.
func (in *inbox) leave(q *inqueue) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if q.messages > 0 {
		q.gone = true
		in.leftovers += q.cost + leftPeer
	}
}

// fetched settles what is left after so many bytes were taken from a queue. mu
// must be held.
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

// admit waits until what is queued for a new peer may be queued. It returns false
// if the socket or the connection ended first. mu must be held, and is when it
// returns true.
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

// welcome is admit for a peer of which something is queued even if it sends
// nothing.
func (in *inbox) welcome(q *inqueue, gone <-chan struct{}) bool {
	in.mu.Lock()
	if !in.admit(q, gone) {
		return false
	}
	in.mu.Unlock()
	return true
}

// isFull says that a queue is at its high-water mark.
func (in *inbox) isFull(q *inqueue) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return q.messages >= in.limits.messages
}
