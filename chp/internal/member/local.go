package member

import (
	"context"
	"time"

	"clustermap/chp/internal/order"
	"clustermap/chp/internal/txn"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
)

// A member relays what its own process sends as it does for clients: a relay numbers it.

var _ order.Elsewhere = (*Member)(nil)

// Apply relays updates of this process.
func (m *Member) Apply(ctx context.Context, records []byte, spans []buf.Span) (last int64, unfit int, err error) {
	if err := m.relay.wait(ctx); err != nil {
		return 0, 0, err
	}
	type applied struct {
		last  int64
		unfit int
	}
	done := make(chan applied, 1)
	m.relay.updatesOfOurs(records, spans, func(number uint64, repeated bool, last int64, unfit int) {
		if repeated {
			last = m.o.Order.SequenceOf(m.relay.ours, number)
		}
		done <- applied{last, unfit}
	})
	select {
	case a := <-done:
		return a.last, a.unfit, nil
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
}

// Transact relays a request of this process, or of somebody for whom it acts. Nobody else sends it again, so another leader judges
// it if it is not known to have been made.
func (m *Member) Transact(ctx context.Context, r *txn.Request, by string) (a txn.Answer, err error) {
	if err := m.relay.wait(ctx); err != nil {
		return a, err
	}
	var since int64
	m.o.Order.Between(func(now *order.Moment) { since = now.State.Last() })
	done := make(chan []byte, 1)
	m.relay.requestOfOurs(r, by, since, func(answer []byte) { done <- answer })
	select {
	case b := <-done:
		if _, ok := a.Next(b); !ok {
			a.Status = txn.StatusUnknown
		}
		return a, nil
	case <-ctx.Done():
		return a, ctx.Err()
	}
}

// Lease relays a question about a lease.
func (m *Member) Lease(ctx context.Context, kind wire.LeaseKind, id kvmsg.LeaseID) (left time.Duration, err error) {
	done := make(chan time.Duration, 1)
	m.relay.leases(kind, []kvmsg.LeaseID{id}, func(all []time.Duration) {
		for _, left := range all {
			done <- left
		}
	})
	select {
	case left := <-done:
		return left, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
