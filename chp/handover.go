package chp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"clustermap/chp/internal/partner"
	"clustermap/chp/internal/wire"
	"clustermap/internal/visible"
	"clustermap/sockets"
)

// handovers lets one handover, or promotion, run at a time.
type handovers struct {
	under   sync.Mutex // is locked while one runs
	running sync.WaitGroup
	changes atomic.Int64 // of the cluster, which are asked for now
}

var (
	errNotOfPair   = errors.New("the server is not part of a pair")
	errManyChanges = errors.New("too many changes of the cluster are under way")
)

// HandoverError reports that a server did not hand over to the other server of its
// pair: it is not the active one of a pair, or the other one could not take over.
type HandoverError struct {
	Server string // as passed to Failover
	Reason string // the server's answer
}

func (e *HandoverError) Error() string {
	return fmt.Sprintf("chp: %s does not hand over: %s", e.Server, visible.String(e.Reason))
}

// Failover asks the active server of a pair, at tcp://host:P, to hand over to the other
// one, and returns when that one is active. No update is lost. security is the same as
// [ClientOptions.Security]. If the server refuses, the error is a [*HandoverError] with
// the reason: only an administrator may ask, see ServerOptions.Admins, and not within two
// time-outs of the pair after the last handover. After any other error the handover may have happened or not:
// [ServerStatus] shows which.
func Failover(ctx context.Context, server string, security sockets.Security) error {
	reason, err := ask(ctx, server, security, wire.AskHandover, wire.AnswerHandover)
	if err == nil && len(reason) > 0 {
		err = &HandoverError{server, string(reason)}
	}
	return err
}

// begin runs do in a goroutine that calls ended with the result. It returns false and does
// nothing while another one runs.
func (h *handovers) begin(ctx context.Context, do func(context.Context) error, ended func(error)) bool {
	if !h.under.TryLock() {
		return false
	}
	h.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, handoverTimeout)
		defer cancel()
		err := do(ctx)
		h.under.Unlock()
		ended(err)
	})
	return true
}

// change is begin for a change of the cluster, which waits for others by itself. It returns false if too many do.
func (h *handovers) change(ctx context.Context, do func(context.Context) error, ended func(error)) bool {
	if h.changes.Add(1) > maxChanges {
		h.changes.Add(-1)
		return false
	}
	h.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, handoverTimeout)
		defer cancel()
		err := do(ctx)
		h.changes.Add(-1)
		ended(err)
	})
	return true
}

// startHandover starts a handover at the request of a peer.
func (s *Server) startHandover(ctx context.Context, peer *sockets.Peer) {
	s.administer(ctx, peer, wire.AnswerHandover, "does not hand over", func(ctx context.Context) error {
		if err := s.pair.Rested(); err != nil {
			return err
		}
		if s.pair.Active() {
			s.events.Info("hands over at the request of a client", who(peer))
		}
		return s.pair.Handover(ctx, strings.TrimSpace(peer.RemoteAddr()+" "+keyText(peer)))
	})
}

// administer does what a peer, which must be an administrator, asks of a server of a pair,
// in a goroutine and not beside another such request, and sends it the result. refusal is
// logged with an error.
func (s *Server) administer(ctx context.Context, peer *sockets.Peer, answer, refusal string, do func(context.Context) error) {
	ended := func(err error) {
		var reason []byte
		if err != nil {
			// The reason says how long ago something was: it tells no two refusals apart.
			host, _ := peer.Property("Peer-Address")
			s.peerLog.Log(slog.LevelWarn, refusal, host+" "+keyText(peer), who(peer), slog.Any("error", err))
			reason = []byte(plainReason(err))
		}
		s.reply(peer, answer, reason)
	}
	err := s.admins.check(peer)
	switch {
	case err != nil:
	case answer == wire.AnswerCluster:
		if s.handovers.change(ctx, do, ended) {
			return
		}
		err = errManyChanges
	case s.pair == nil:
		err = errNotOfPair
	case !s.handovers.begin(ctx, do, ended):
		err = partner.ErrHandover
	default:
		return
	}
	ended(err)
}

// plainReason returns the text of an error without package names, to follow another
// text.
func plainReason(err error) string {
	text := strings.TrimPrefix(err.Error(), "chp: handover failed: ")
	return strings.TrimPrefix(text, "binarystar: ")
}
