package chp

import (
	"context"

	"clustermap/internal/kvmsg"
)

// Apply sends the updates of a batch, in order, as if Set and Delete were called for
// each, and waits as Set does. If the batch fits into the send queue, Apply locks the
// queue once and sends the batch in one piece. Apply does not change the batch, and does not
// retain it.
//
// If the batch has an error, or one of its values is too large for this client or its
// server, Apply returns the error and sends nothing. After any other error, such as that
// of a context that ended while Apply waited for room, a first part of the batch may have
// been queued, and will be sent.
//
// Apply does not wait for the updates to come back: call Flush. The protocol has no
// transactions: readers can see the first updates of a batch without the others, updates
// of other clients may come in between, and the server may refuse some of them.
func (c *Client) Apply(ctx context.Context, b *Batch) error {
	if err := c.checkBatch(b); err != nil || b.Len() == 0 {
		return err
	}
	var space [128]byte // on the stack
	props := space[:0]
	w := &c.writer
	w.mu.Lock()
	for w.session == nil && !w.closed { // enqueue would wait, but not check the largest value first
		w.mu.Unlock()
		if err := c.WaitActive(ctx); err != nil {
			return err
		}
		w.mu.Lock()
	}
	if w.session != nil {
		if err := c.checkSize(b.largest, w.session.maxValue); err != nil {
			w.mu.Unlock()
			return err
		}
	}
	for i := range b.Len() {
		r := b.record(i)
		props = append(props[:0], r.Props()...)
		if err := c.enqueue(ctx, r.Key(), r.Value(), props, nil); err != nil {
			return err
		}
	}
	w.mu.Unlock()
	return nil
}

// checkBatch returns an error if a batch cannot be sent to any server.
func (c *Client) checkBatch(b *Batch) error {
	if err := b.Err(); err != nil {
		return err
	}
	if c.maxValue > 0 && b.largest > c.maxValue {
		return kvmsg.ErrValueTooLarge
	}
	if c.dialect.full {
		return nil
	}
	for i := range b.Len() {
		r := b.record(i)
		if err := c.dialect.carries(r.Value(), r.Props()); err != nil {
			return err
		}
	}
	return nil
}
