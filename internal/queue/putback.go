package queue

// PutBack returns messages that TakeBatch has taken from q, and that were not used, to
// the front of q, so that the next receive call for q gets them. It takes over b's
// chunk reference and spans, and leaves b empty. The queue may then exceed its
// high-water mark, by the messages that were taken out of it.
//
// Messages that can no longer be received are dropped: those of a closed inbox and those
// of a queue that was cut.
func (in *Inbox) PutBack(q *Inqueue, b *Batch) {
	if len(b.Spans) == 0 {
		b.Release()
		return
	}
	in.lock()
	if in.over || q.state == inCut || in.conflate && q.batches.Len() > 0 {
		in.mu.Unlock()
		b.drop()
		return
	}
	n := HWM{Messages: len(b.Spans), Bytes: b.Cost}
	q.batches.PushFront(inbatch{Batch: *b})
	q.size.Messages += n.Messages
	q.size.Bytes += n.Bytes
	in.total.used += n.Bytes
	if q.left {
		in.leftovers.add(q, n.Bytes)
	}
	if q.link != nil {
		// The link has got a receipt for these messages, or will. It must not get another
		// one when they are taken again.
		q.pending = q.pending.Minus(n)
	}
	in.list(q)
	in.mu.Unlock()
	*b = Batch{}
}
