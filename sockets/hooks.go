package sockets

import (
	"context"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/zmtp"
)

// What only packages of this module can do; see package hooks.
func init() {
	hooks.Kind = func(socket any) zmtp.SocketType { return socket.(Socket).engine().Kind() }
	hooks.Prepare = func(socket any, f func(*hooks.Batch)) { socket.(Socket).engine().SetPrepare(f) }
	hooks.Pace = func(socket any, f func(*hooks.Batch) time.Duration) { socket.(Socket).engine().SetPace(f) }
	hooks.Scan = func(socket any, f func([]byte) (int, uint64)) { socket.(Socket).engine().SetScan(f) }
	hooks.Alone = func(socket any) { socket.(Socket).engine().Alone() }
	hooks.Client = func(peer any) any { return peer.(*Peer).engine().Client() }
	hooks.SendWire = func(ctx context.Context, socket any, wire []byte, messages int, owner hooks.Owner) error {
		return socket.(WireSender).sendWire(ctx, wire, messages, owner)
	}
	hooks.SendWireTo = func(ctx context.Context, router, peer any, wire []byte, messages int, owner hooks.Owner) error {
		return router.(*Router).sendWire(ctx, peer.(*Peer), wire, messages, owner)
	}
	hooks.SendSpans = func(ctx context.Context, pub any, wire []byte, spans []buf.Span, owner hooks.Owner) error {
		return publisherOf(pub).sendSpans(ctx, wire, len(spans), spans, owner)
	}
	hooks.Admit = func(pub any, f func(peer any, topic []byte) bool) { publisherOf(pub).admit = f }
	hooks.SendTo = func(pub, peer any, wire []byte, messages int, owner hooks.Owner) error {
		return publisherOf(pub).sendWireTo(peer.(*Peer), wire, messages, owner)
	}
	hooks.Topics = func(pub, peer any, without string, most int) ([]string, int) {
		return publisherOf(pub).fan.Topics(roleOf(peer.(*Peer).engine()), without, most)
	}
}

func publisherOf(pub any) *publisher {
	if x, ok := pub.(*XPub); ok {
		return &x.publisher
	}
	return &pub.(*Pub).publisher
}

func (p *publisher) sendWireTo(peer *Peer, wire []byte, messages int, owner hooks.Owner) error {
	if err := p.owner.core.Open(); err != nil {
		return err
	}
	if !p.owner.owns(peer) {
		return ErrForeignPeer
	}
	q := roleOf(peer.engine())
	if q == nil || !p.fan.SendTo(q, peer.engine().Conn(), wire, messages, owner) {
		return ErrUnroutable
	}
	return nil
}
