package chp

import (
	"context"

	"clustermap/internal/kvmsg"
)

// Set sends a new value of a key to the server, as a KVSET (RFC 12). It waits
// until the client is ACTIVE, and until there is room in the queue to the
// server; when the context ends first, nothing is sent, and the error is that of
// [Client.WaitActive] if there is no server to send it to. The queue is emptied in
// the background, once the server's collector has subscribed.
//
// The update goes to the server that the client follows and, unless that is a
// server of this package, to the others of ClientOptions.Servers as far as they
// have room, as the guide's pairs of Clone servers expect.
//
// It does not wait for the server's KVPUB, which is what changes the replica:
// see SetSync and Flush. An update that waits to be sent when the connection breaks
// goes to the next server that the client follows.
//
// With a server of this package, what was sent and did not come back before the
// connection broke is sent again when the client has connected again, before anything
// new, as long as the server still has the same map. The server applies each update
// once, however often it gets it, and in the order of the calls. With another map, or
// a server of another kind, such an update may have been lost, and is not sent again.
// What is kept for that is bounded by ClientOptions.SendQueue, like what waits to be
// sent; beyond it Set waits.
//
// The key has 1 to 255 bytes without NUL, is not KTHXBAI and does not begin
// with HUGZ. The value has at least one byte (ErrEmptyValue otherwise) and at
// most MaxValueSize. What breaks these rules, or those of the options, is
// refused with a *MessageError. Set keeps neither key nor value, and allocates
// nothing unless it has to wait.
func (c *Client) Set(ctx context.Context, key string, value []byte, opts ...SetOption) error {
	if len(value) == 0 {
		return ErrEmptyValue
	}
	return c.update(ctx, key, value, opts, nil)
}

// SetSync is Set, and waits until the update has come back as the server's
// KVPUB and has been applied: Get then finds it, or what came after it. It
// returns the KVPUB's sequence. If the server refuses the update, it returns
// ErrRefused with the reason; if the server's collector takes no updates from this
// client, a *CollectorError. A key outside of the client's subtrees cannot come back:
// ErrOutsideSubtrees, and nothing is sent.
//
// If a connection to a server of this package breaks meanwhile, SetSync goes on
// waiting, until the client has connected again and the server has said whether it
// has applied the update; if not, it is sent again, as Set says. The sequence is then
// that of the KVPUB if the key still has this update's value when the client is back,
// and otherwise that of the snapshot, which is at least as high. If the client finds
// another map than the one before, on that server or the next, SetSync returns
// ErrUncertain. With servers of other kinds it returns ErrUncertain as soon as a
// connection breaks, and when the server passes over the update.
//
// When the context ends while it waits, the outcome is not known, unless the update
// had not been sent yet: then it never will be. One that was sent once may be sent
// again after the call has returned.
func (c *Client) SetSync(ctx context.Context, key string, value []byte, opts ...SetOption) (seq int64, err error) {
	if len(value) == 0 {
		return 0, ErrEmptyValue
	}
	return c.updateSync(ctx, key, value, opts)
}

// Delete sends the deletion of a key to the server: an empty KVSET. It waits as
// Set does.
func (c *Client) Delete(ctx context.Context, key string) error {
	return c.update(ctx, key, nil, nil, nil)
}

// DeleteSync is Delete, and waits as SetSync does.
func (c *Client) DeleteSync(ctx context.Context, key string) (seq int64, err error) {
	return c.updateSync(ctx, key, nil, nil)
}

// Flush waits until all of the client's updates that were sent before, to keys
// of its subtrees, have come back and have been applied, across broken connections as
// SetSync does. If some did not and never will, it returns the reasons, which are
// those of SetSync, joined. A later Flush does not report them again, nor what a
// SetSync has returned before.
func (c *Client) Flush(ctx context.Context) error {
	w, err := c.echoes.flush()
	if w == nil {
		return err
	}
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		c.echoes.forget(w)
		return ctx.Err()
	}
}

func (c *Client) updateSync(ctx context.Context, key string, value []byte, opts []SetOption) (int64, error) {
	if !c.subtrees.holds(bytesOf(key)) {
		return 0, ErrOutsideSubtrees
	}
	w := newEchoWait()
	if err := c.update(ctx, key, value, opts, w); err != nil {
		return 0, err
	}
	select {
	case <-w.done:
		return w.seq, w.err
	case <-ctx.Done():
		c.echoes.forget(w)
		c.writer.drop(w.n)
		return 0, c.explain(ctx.Err())
	}
}

// validKey returns a *MessageError for a key that servers refuse.
func validKey(key string) error {
	switch {
	case len(key) == 0:
		return kvmsg.ErrKeyEmpty
	case len(key) > kvmsg.MaxKey:
		return kvmsg.ErrKeyLong
	}
	_, err := kvmsg.CheckKey(bytesOf(key), kvmsg.FromClient)
	return err
}
