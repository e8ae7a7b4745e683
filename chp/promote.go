package chp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"clustermap/chp/internal/wire"
	"clustermap/internal/visible"
	"clustermap/internal/wake"
	"clustermap/patterns/binarystar"
	"clustermap/sockets"
)

// PromoteError reports that a server was not promoted: it is active already, the other
// server of its pair is heard, or its map is not complete.
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
// heard for the time-out of the pair, nor when it is asked on a new connection; and a
// server that has just started gives the other one time first. After any other
// error it may have been promoted or not: [ServerStatus] shows which.
func Promote(ctx context.Context, server string, security sockets.Security) error {
	reason, err := ask(ctx, server, security, wire.AskPromote, wire.AnswerPromote)
	if err == nil && len(reason) > 0 {
		err = &PromoteError{server, string(reason)}
	}
	return err
}

var (
	errActive = errors.New("the server is active")
	errHeard  = errors.New("the other server of the pair is heard: it is not gone")
	errNoCopy = errors.New("the server has not copied the active server's map completely; restarted, it has the map that it had before")
)

// startPromotion makes this server active at the request of a peer.
func (s *Server) startPromotion(ctx context.Context, peer *sockets.Peer) {
	s.administer(ctx, peer, wire.AnswerPromote, "is not promoted", func(ctx context.Context) error {
		err := s.pair.promote(ctx)
		if err == nil {
			s.log.Warn("was promoted at the request of a client: it serves without the other server", who(peer), "keys", s.Len(), "sequence", s.Sequence())
		}
		return err
	})
}

// promote makes this server active if the other one is not heard, also on a new
// connection.
func (p *pair) promote(ctx context.Context) error {
	switch {
	case p.active.Load():
		return errActive
	case p.mayServe():
	case p.node.State() == binarystar.StatePassive:
		return errNoCopy
	default:
		return fmt.Errorf("the server has just started, and gives the other one %v more to be heard", p.waitsFor().Round(time.Millisecond))
	}
	if p.probe(ctx) == nil {
		return errHeard
	}
	if err := p.node.Promote(ctx); errors.Is(err, binarystar.ErrPeerHeard) {
		return errHeard
	} else if err != nil {
		return err
	}
	for !p.active.Load() { // run calls lead, unless the other server is heard now
		if p.node.State() != binarystar.StateActive {
			return errHeard
		}
		if !wake.Pause(ctx, drainLook) {
			return ctx.Err()
		}
	}
	return nil
}

// vigil says when a server that waits for the other one logs that: when the other one
// should have been heard, and each time the wait has doubled, but at least every
// vigilMost. Time is counted in looks.
type vigil struct{ looks, next int }

const (
	vigilFirst = startTimeouts * looksPerTimeout
	vigilMost  = 10 * time.Minute
)

// look counts a look, and reports whether to log.
func (v *vigil) look(waits bool, most int) bool {
	if !waits {
		*v = vigil{}
		return false
	}
	if v.looks++; v.looks < max(v.next, vigilFirst) {
		return false
	}
	v.next = v.looks + min(v.looks, most)
	return true
}

// waits logs that a backup has not heard the primary since it started, for which it waits
// without end.
func (p *pair) waits() {
	waits := p.node.State() == binarystar.StateBackup && p.node.Peer().State == 0
	if !p.vigil.look(waits, int(vigilMost/p.lookEvery())) {
		return
	}
	o := p.server.opts.Pair
	p.server.log.Warn("waits for the primary, which has not been heard since this server started and may have newer updates; if it is gone for good, chp promote makes this server active",
		"peer", o.Peer, "peer_state", o.PeerState, "waited", time.Duration(p.vigil.looks)*p.lookEvery(), "keys", p.server.Len())
}
