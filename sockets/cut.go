package sockets

// cut empties a peer's queue and has everything dropped that the peer sends later,
// for Disconnect. It returns the batches that were queued, for the caller to drop
// with no lock held: the Release method of an Owner is the application's code.
func (in *inbox) cut(q *inqueue) (dropped []inbatch) {
	in.mu.Lock()
	defer in.mu.Unlock()
	q.cut = true
	for q.batches.Len() > 0 {
		dropped = append(dropped, q.batches.Pop())
	}
	cost := q.cost
	q.messages, q.cost, q.untold = 0, 0, hwm{}
	in.fetched(q, cost)
	if q.blocked {
		q.unblock()
	}
	in.delist(q)
	return dropped
}

// drop counts the messages as discarded and releases their memory.
func drop(batches []inbatch) {
	for _, b := range batches {
		b.peer.discarded.Add(uint64(len(b.spans) - b.next))
		b.chunk.Release()
	}
}
