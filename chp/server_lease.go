package chp

import (
	"context"
	"encoding/hex"
	"time"

	"clustermap/chp/internal/wire"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/wake"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// leaseAnswers is memory for questions about leases, which is used again. It belongs to the
// goroutine of runRequests, which answers them at once: they wait neither for updates nor for a log.
type leaseAnswers struct {
	ids  []kvmsg.LeaseID
	left []time.Duration
	wire []byte
}

// answerLeases answers a message if it is a question about leases, and reports whether it is. A server that
// cannot answer now says nothing: the client asks again, here or elsewhere.
func (s *Server) answerLeases(a *leaseAnswers, peer *sockets.Peer, m zmtp.WireMessage) bool {
	number, kind, ids, ok := wire.ParseLeaseQuestion(m, a.ids[:0])
	a.ids = ids
	if !ok {
		return false
	}
	if s.member != nil {
		answer := func(left []time.Duration) {
			_ = hooks.SendWireTo(wake.Ended, s.router, peer, wire.AppendLeases(nil, number, left), 1, nil)
		}
		if s.rights != nil {
			s.relayOwnLeases(peer, kind, ids, answer)
		} else {
			s.member.Leases(kind, ids, answer)
		}
		return true
	}
	if s.rights != nil {
		ok = s.answerOwnLeases(a, peer, kind, ids)
	} else {
		a.left, ok = s.sequencer.Leases(kind, ids, a.left[:0])
	}
	if ok {
		a.wire = wire.AppendLeases(a.wire[:0], number, a.left)
		// Without room the client does not read, and without the answer it asks again.
		_ = hooks.SendWireTo(wake.Ended, s.router, peer, a.wire, 1, nil)
	}
	return true
}

// Grant makes a lease, as [Client.Grant] does, and returns its identity for [WithLeaseID]. Nobody renews it but
// whoever calls RenewLease, here or at a client.
func (s *Server) Grant(ctx context.Context, ttl time.Duration) (id string, err error) {
	lease, p, err := newLease(ttl)
	if err == nil {
		_, err = s.propose(ctx, p)
	}
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(lease[:]), nil
}

// RenewLease renews a lease once, as [Client.RenewLease] does.
func (s *Server) RenewLease(ctx context.Context, id string) (ttl time.Duration, err error) {
	return s.askLease(ctx, wire.LeaseRenew, id)
}

// LeaseLeft returns how much time a lease has left, or 0 if there is none.
func (s *Server) LeaseLeft(ctx context.Context, id string) (left time.Duration, err error) {
	return s.askLease(ctx, wire.LeaseLook, id)
}

// RevokeLease ends a lease, and returns when its keys are deleted, as [Client.RevokeLease] does.
func (s *Server) RevokeLease(ctx context.Context, id string) error {
	same := func(err error) error { return err }
	return untilGone(ctx, same, func() (time.Duration, error) { return s.lease(ctx, wire.LeaseRevoke, id) })
}

func (s *Server) askLease(ctx context.Context, kind wire.LeaseKind, id string) (time.Duration, error) {
	left, err := s.lease(ctx, kind, id)
	return max(left, 0), err
}

func (s *Server) lease(ctx context.Context, kind wire.LeaseKind, id string) (time.Duration, error) {
	lease, ok := kvmsg.ParseLeaseID([]byte(id))
	switch {
	case !ok:
		return 0, errLeaseID
	case !s.dialect.Full:
		return 0, ErrNoLeases
	}
	return s.local.Lease(ctx, kind, lease)
}
