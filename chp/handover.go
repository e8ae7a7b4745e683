package chp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"clustermap/sockets"
)

// handovers lets one handover run at a time.
type handovers struct {
	mu      sync.Mutex
	under   bool
	running sync.WaitGroup
}

// handoverTimeout bounds a handover.
const handoverTimeout = 30 * time.Second

var (
	errNotOfPair = errors.New("the server is not part of a pair")
	errHandover  = errors.New("another handover is in progress")
)

// HandoverError reports that a server did not hand over to the other server of its
// pair: it is not the active one of a pair, or the other one could not take over.
type HandoverError struct {
	Server string // as passed to Failover
	Reason string // the server's answer
}

func (e *HandoverError) Error() string {
	return fmt.Sprintf("chp: %s does not hand over: %s", e.Server, e.Reason)
}

// Failover asks the active server of a pair, at tcp://host:P, to hand over to the other
// one, and returns when that one is active. No update is lost. security is the same as
// [ClientOptions.Security]. If the server refuses, the error is a [*HandoverError] with
// the reason. After any other error the handover may have happened or not:
// [ServerStatus] shows which.
func Failover(ctx context.Context, server string, security sockets.Security) error {
	reason, err := ask(ctx, server, security, askHandover, answerHandover)
	if err == nil && len(reason) > 0 {
		err = &HandoverError{server, string(reason)}
	}
	return err
}

// begin runs a handover in a goroutine that calls ended with the result. It returns
// false and does nothing while another handover runs.
func (h *handovers) begin(ctx context.Context, do func(context.Context) error, ended func(error)) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.under {
		return false
	}
	h.under = true
	h.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, handoverTimeout)
		defer cancel()
		err := do(ctx)
		h.mu.Lock()
		h.under = false
		h.mu.Unlock()
		ended(err)
	})
	return true
}

// startHandover starts a handover at the request of a peer and sends it the result.
func (s *Server) startHandover(ctx context.Context, peer *sockets.Peer) {
	answer := func(err error) {
		var reason []byte
		if err != nil {
			reason = []byte(plainReason(err))
		}
		s.reply(peer, answerHandover, reason)
	}
	if !s.handovers.begin(ctx, s.handover, answer) {
		answer(errHandover)
	}
}

// plainReason returns the text of an error without package names, to follow another
// text.
func plainReason(err error) string {
	text := strings.TrimPrefix(err.Error(), "chp: handover failed: ")
	return strings.TrimPrefix(text, "binarystar: ")
}

// handover makes the other server of the pair active and returns when it is. The text
// of the error is sent to the peer that requested the handover.
func (s *Server) handover(ctx context.Context) error {
	if s.pair == nil {
		return errNotOfPair
	}
	return s.pair.handover(ctx)
}
