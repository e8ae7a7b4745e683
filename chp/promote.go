package chp

import (
	"context"
	"fmt"

	"clustermap/chp/internal/wire"
	"clustermap/internal/visible"
	"clustermap/sockets"
)

// PromoteError reports that a server was not promoted: it is active already, the other
// server of its pair is heard, somebody answers at its addresses, or its map is not complete.
type PromoteError struct {
	Server string // as passed to Promote
	Reason string // the server's answer
}

func (e *PromoteError) Error() string {
	return fmt.Sprintf("chp: %s is not promoted: %s", e.Server, visible.String(e.Reason))
}

// Promote makes the server of a pair at tcp://host:P active although the other one is gone,
// and returns when it serves. It is for a backup that was restarted and does not hear its
// primary: such a server never serves by itself, for the primary may have newer updates.
// If that one comes back after this server has accepted updates of clients, the updates
// that only the other one has may be discarded: see PairOptions.OnDiverged. If this server
// has accepted none, the newer map wins. security is the same as [ClientOptions.Security].
//
// If the server refuses, the error is a [*PromoteError] with the reason: only an
// administrator may ask, see ServerOptions.Admins; the other server must not have been
// heard for the time-out of the pair, nor when it is asked on a new connection; nobody may
// accept a connection at PairOptions.Peer or PeerState, who then is not gone; and a
// server that has just started gives the other one time first. After any other
// error it may have been promoted or not: [ServerStatus] shows which.
func Promote(ctx context.Context, server string, security sockets.Security) error {
	reason, err := ask(ctx, server, security, wire.AskPromote, wire.AnswerPromote)
	if err == nil && len(reason) > 0 {
		err = &PromoteError{server, string(reason)}
	}
	return err
}

// startPromotion makes this server active at the request of a peer.
func (s *Server) startPromotion(ctx context.Context, peer *sockets.Peer) {
	s.administer(ctx, peer, wire.AnswerPromote, "is not promoted", func(ctx context.Context) error {
		err := s.pair.Promote(ctx)
		if err == nil {
			s.events.Warn("was promoted at the request of a client: it serves without the other server", who(peer), "keys", s.Len(), "sequence", s.Sequence())
		}
		return err
	})
}
