package sockets

import (
	"context"

	"clustermap/internal/hooks"
)

// What only packages of this module can do; see package hooks.
func init() {
	hooks.Scan = func(socket any, f func([]byte) (int, uint64)) { socket.(Socket).engine().SetScan(f) }
	hooks.SendSpans = func(ctx context.Context, pub any, wire []byte, spans []Span, owner hooks.Owner) error {
		return publisherOf(pub).sendWire(ctx, wire, len(spans), spans, owner)
	}
	hooks.SendTo = func(xpub, peer any, wire []byte, messages int, owner hooks.Owner) error {
		return xpub.(*XPub).sendWireTo(peer.(*Peer), wire, messages, owner)
	}
	hooks.Rewrite = func(batch any, size int, fill func([]byte) []Span) { batch.(*Batch).engine().Rewrite(size, fill) }
}

func publisherOf(pub any) *publisher {
	if x, ok := pub.(*XPub); ok {
		return &x.publisher
	}
	return &pub.(*Pub).publisher
}

func (x *XPub) sendWireTo(peer *Peer, wire []byte, messages int, owner Owner) error {
	if err := x.core.Open(); err != nil {
		return err
	}
	if !x.owns(peer) {
		return ErrForeignPeer
	}
	q := roleOf(peer.engine())
	if q == nil || !x.fan.SendTo(q, peer.engine().Conn(), wire, messages, owner) {
		return ErrUnroutable
	}
	return nil
}
