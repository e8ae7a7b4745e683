package chp

import (
	"context"
	"strings"

	"clustermap/chp/internal/ledger"
	"clustermap/internal/kvmsg"
)

// Set sends an update of a key to the server, as a KVSET (RFC 12). It waits until the
// client is ACTIVE and its send queue has room. If the context ends first, nothing is
// sent; without a server, the error is that of [Client.WaitActive]. The queue is sent
// in the background, once the server's collector has subscribed.
//
// The update goes to the server that the client follows. If that is a server of another
// implementation, the update also goes to those of the other ClientOptions.Servers
// whose queues have room, as the guide's pairs of Clone servers expect.
//
// Set does not wait for the server's KVPUB, and only the KVPUB changes the replica: see
// SetSync and Flush. If the connection breaks while an update is queued, the update goes
// to the next server that the client follows.
//
// If the connection to a server of this package breaks after an update was sent and
// before it came back, the client sends the update again when it has reconnected,
// before any new one, provided that the server still has the same map and remembers
// this client. The server applies each update exactly once, in the order of the calls.
// Otherwise, or if the server is of another implementation, the update may be lost and
// is not sent again. ClientOptions.SendQueue bounds the updates that are kept for this together
// with those that are queued; beyond it Set waits.
//
// The key has 1 to 255 bytes without NUL, is not KTHXBAI and does not begin with HUGZ, nor with $lease/:
// those are the keys of leases, which can be deleted only.
// The value has at least one byte (ErrEmptyValue otherwise) and at most MaxValueSize.
// Set returns a *MessageError for a violation of these rules or of those of the
// options. Set does not retain key or value, and allocates nothing unless it has to
// wait.
func (c *Client) Set(ctx context.Context, key string, value []byte, opts ...SetOption) error {
	if len(value) == 0 {
		return ErrEmptyValue
	}
	if leased(opts) {
		_, err := c.setLeased(ctx, strings.Clone(key), value, opts)
		return err
	}
	return c.update(ctx, key, value, opts, nil)
}

// setLeased sets a key that is attached to a lease. The key may not be on the caller's stack.
func (c *Client) setLeased(ctx context.Context, key string, value []byte, opts []SetOption) (seq int64, err error) {
	with := make([]IfOption, len(opts))
	for i := range opts {
		with[i] = opts[i]
	}
	return c.SetIf(ctx, key, value, with...)
}

// SetSync is like Set, but also waits until the update is published and the replica has
// it: then Get returns its value, or that of a later update. A server of this package says
// which of the client's updates are published, and where they are in its order; at others,
// the client recognizes its own KVPUB. SetSync returns the update's sequence, or a later one
// that the replica has, if the server no longer says where the update is: it names the last
// eight runs of this client's updates between those of others. If the server refuses the
// update, the error is ErrRefused with the reason; if the server's collector does not accept
// this client, it is a *CollectorError. For a key outside of the client's subtrees it returns
// ErrOutsideSubtrees and sends nothing.
//
// If a connection to a server of this package breaks, SetSync keeps waiting until the
// client has reconnected and the server has said whether it applied the update; if it
// did not, the update is sent again as described at Set. A server that has restarted, or
// has just become active, does not know where earlier updates are: then the sequence is that
// of the client's snapshot. If the client finds another map than before, on the same
// server or the next, SetSync returns ErrUncertain. With a server of another
// implementation it returns ErrUncertain as soon as a connection breaks, or when the
// server has skipped the update.
//
// If the context ends while SetSync waits, the outcome is unknown, unless the update
// had not been sent yet: then it is never sent. An update that was sent once may be
// sent again after SetSync has returned.
func (c *Client) SetSync(ctx context.Context, key string, value []byte, opts ...SetOption) (seq int64, err error) {
	if len(value) == 0 {
		return 0, ErrEmptyValue
	}
	if leased(opts) {
		return c.setLeased(ctx, strings.Clone(key), value, opts)
	}
	return c.updateSync(ctx, key, value, opts)
}

// Delete sends the deletion of a key to the server, as an empty KVSET. It waits as Set
// does.
func (c *Client) Delete(ctx context.Context, key string) error {
	return c.update(ctx, key, nil, nil, nil)
}

// DeleteSync is like Delete, but waits as SetSync does.
func (c *Client) DeleteSync(ctx context.Context, key string) (seq int64, err error) {
	return c.updateSync(ctx, key, nil, nil)
}

// Flush waits until all updates that the client has sent so far, to keys of its subtrees,
// are published and the replica has them; it waits for no others, and reports nothing of
// them. Like SetSync it continues across broken connections. If some updates failed, it
// returns their errors, which are those of SetSync, joined. Each error is reported once:
// not again by a later Flush, and not if SetSync has returned it.
func (c *Client) Flush(ctx context.Context) error {
	w, err := c.writer.Flush()
	if w == nil {
		return err
	}
	select {
	case <-w.Done:
		_, err := w.Result()
		return err
	case <-ctx.Done():
		c.writer.Forget(w, nil)
		return ctx.Err()
	}
}

func (c *Client) updateSync(ctx context.Context, key string, value []byte, opts []SetOption) (int64, error) {
	if !c.subtrees.Contains(bytesOf(key)) {
		if err := kvmsg.ValidUpdate(bytesOf(key), value); err != nil {
			return 0, err
		}
		return 0, outsideSubtrees(key)
	}
	return c.updateWait(ctx, key, value, opts, ledger.NewWait())
}

// updateWait is updateSync with a new wait of the caller, in which the update's number is
// then found, or 0 if the update was not queued.
func (c *Client) updateWait(ctx context.Context, key string, value []byte, opts []SetOption, w *ledger.Wait) (int64, error) {
	if err := c.update(ctx, key, value, opts, w); err != nil {
		return 0, err
	}
	select {
	case <-w.Done:
		seq, err := w.Result()
		if err != nil {
			err = deniedKey(err, key)
		}
		return seq, err
	case <-ctx.Done():
		c.writer.GiveUp(w)
		return 0, c.explain(ctx.Err())
	}
}

// update sends one update. wait is the wait of a SetSync, or nil.
func (c *Client) update(ctx context.Context, key string, value []byte, opts []SetOption, wait *ledger.Wait) error {
	if err := kvmsg.ValidUpdate(bytesOf(key), value); err != nil {
		return err
	}
	if c.maxValue > 0 && len(value) > c.maxValue {
		return kvmsg.ErrValueTooLarge
	}
	if len(opts) > 0 || c.dialect.Three {
		return c.updateWith(ctx, key, value, opts, wait)
	}
	return c.writer.Put(ctx, bytesOf(key), value, nil, wait)
}

// updateWith is update, after its checks, for an update with properties, or for a dialect
// that does not carry all updates. Apart from update, since the memory for the properties
// takes time to clear.
func (c *Client) updateWith(ctx context.Context, key string, value []byte, opts []SetOption, wait *ledger.Wait) error {
	var space [128]byte // on the stack
	props, err := appendOptions(space[:0], opts)
	if err != nil {
		return err
	}
	if err := c.dialect.Carries(value, props); err != nil {
		return err
	}
	return c.writer.Put(ctx, bytesOf(key), value, props, wait)
}
