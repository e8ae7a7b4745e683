package chp

import (
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
