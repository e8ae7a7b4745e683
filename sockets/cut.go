package sockets

// cut drops what is queued of a peer, and everything that comes of it later, as
// Disconnect has it. It returns what was queued, for the caller to drop without
// locks: an Owner's Release is code that we do not know.
func (in *inbox) cut(q *inqueue) (dropped []inbatch) {
	in.mu.Lock()
	defer in.mu.Unlock()
	q.cut = true
	for q.batches.len() > 0 {
		dropped = append(dropped, q.batches.pop())
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

// drop counts the messages as discarded and gives their memory back.
func drop(batches []inbatch) {
	for _, b := range batches {
		b.peer.discarded.Add(uint64(len(b.spans) - b.next))
		b.chunk.Release()
	}
}
