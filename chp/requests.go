package chp

import (
	"context"

	"clustermap/chp/internal/partner"
	"clustermap/chp/internal/wire"
	"clustermap/sockets"
)

// runRequests handles the messages to the ROUTER: snapshot requests, questions, and the
// messages of the other server of a pair.
func (s *Server) runRequests(ctx context.Context) {
	var b sockets.Batch
	var leases leaseAnswers
	defer b.Release()
	defer s.handovers.running.Wait()
	for s.router.RecvBatch(ctx, &b) == nil {
		other := s.pair != nil && partner.Announces(b.Peer())
		for i := range b.Len() {
			if other {
				s.pair.Hears(ctx, b.Peer(), b.Message(i))
				continue
			}
			if wire.Ours(b.Peer()) && s.confirms.Ask(ctx, b.Peer(), b.Message(i)) {
				continue
			}
			if wire.Ours(b.Peer()) && s.answerLeases(&leases, b.Peer(), b.Message(i)) {
				continue
			}
			if s.rights != nil && !s.mayAsk(b.Peer(), b.Message(i)) {
				continue
			}
			if s.answerHistory(b.Peer(), b.Message(i)) || s.answerQuestion(ctx, b.Peer(), b.Message(i)) {
				continue
			}
			w, err := s.dialect.ParseRequest(b.Message(i), wire.Ours(b.Peer()))
			switch {
			case err != nil:
			case s.rights != nil && !s.mayJoin(b.Peer(), b.Message(i), w):
			case s.pair != nil && !s.pair.Active():
				err = s.pair.Park(ctx, b.Peer(), w)
			case s.member != nil:
				err = s.member.Ask(b.Peer(), w)
			default:
				err = s.snapshots.Add(ctx, b.Peer(), w)
			}
			if err != nil {
				s.counts.badAsks.Add(1)
				s.log.Debug("snapshot request refused", "remote", b.Peer().RemoteAddr(), "error", err)
			}
		}
	}
}
