package chp

import (
	"context"

	"clustermap/chp/internal/ledger"
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
// Apply does not wait for the updates to come back: see ApplySync and Flush. It is no
// transaction: readers can see the first updates of a batch without the others, updates
// of other clients may come in between, and the server may refuse some of them. See ApplyIf.
func (c *Client) Apply(ctx context.Context, b *Batch) error { return c.applyBatch(ctx, b, nil) }

// ApplySync is like Apply, but also waits until all updates of the batch have come back
// and were applied, across broken connections, as SetSync does. It returns the sequence of
// the last one, or 0 for an empty batch.
//
// If some of the updates failed, it returns their errors, which are those of SetSync,
// joined; of errors of the same kind it returns one. The others were made. If a key is
// outside of the client's subtrees, the error is ErrOutsideSubtrees, and nothing is sent.
// If the context ends while ApplySync waits, the outcome is unknown, and updates that were
// queued will still be sent.
func (c *Client) ApplySync(ctx context.Context, b *Batch) (seq int64, err error) {
	for i := range b.Len() {
		if key := b.record(i).Key(); !c.subtrees.Contains(key) {
			return 0, outsideSubtrees(string(key))
		}
	}
	all, waits := ledger.NewGroup(b.Len())
	if err := c.applyBatch(ctx, b, waits); err != nil || b.Len() == 0 {
		c.writer.Forget(nil, all)
		return 0, err
	}
	select {
	case <-all.Done:
		if err := all.Lost.Err(); err != nil {
			return 0, err
		}
		return all.Seq, nil
	case <-ctx.Done():
		c.writer.Forget(nil, all)
		return 0, c.explain(ctx.Err())
	}
}

// applyBatch queues the updates of a batch. waits has one wait for each of them, or is nil.
func (c *Client) applyBatch(ctx context.Context, b *Batch, waits []ledger.Wait) error {
	if err := c.checkBatch(b); err != nil || b.Len() == 0 {
		return err
	}
	return c.writer.PutAll(ctx, b.wire, b.spans, b.largest, waits)
}

// checkBatch returns an error if a batch cannot be sent to any server.
func (c *Client) checkBatch(b *Batch) error {
	if err := b.Err(); err != nil {
		return err
	}
	if len(b.leases) > 0 {
		return errLeaseBatch
	}
	if c.maxValue > 0 && b.largest > c.maxValue {
		return kvmsg.ErrValueTooLarge
	}
	if c.dialect.Full {
		return nil
	}
	for i := range b.Len() {
		r := b.record(i)
		if err := c.dialect.Carries(r.Value(), r.Props()); err != nil {
			return err
		}
	}
	return nil
}
