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

// handovers lets one handover be under way at a time.
type handovers struct {
	mu      sync.Mutex
	under   bool
	running sync.WaitGroup
}

// handoverTimeout bounds a handover.
const handoverTimeout = 30 * time.Second

var (
	errNotOfPair = errors.New("not one of a pair")
	errHandover  = errors.New("a handover is under way")
)

// HandoverError says that a server did not hand over to the other one of its pair:
// it is not the active one of a pair, or the other one was not able to take over.
type HandoverError struct {
	Server string // as it was given to Failover
	Reason string // what the server says
}

func (e *HandoverError) Error() string {
	return fmt.Sprintf("chp: %s does not hand over: %s", e.Server, e.Reason)
}

// Failover asks the server at tcp://host:P, the active one of a pair, to hand over
// to the other one, and returns when that one is active. No update is lost. security
// is what [ClientOptions.Security] would be. A server that does not hand over says
// why: a [*HandoverError]. If the error is another one, it may have handed over or
// not: [ServerStatus] tells.
func Failover(ctx context.Context, server string, security sockets.Security) error {
	reason, err := ask(ctx, server, security, askHandover, answerHandover)
	if err == nil && len(reason) > 0 {
		err = &HandoverError{server, string(reason)}
	}
	return err
}

// begin has a handover done in a goroutine, which then calls ended. It returns false,
// and begins nothing, while another one is under way.
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

// takeHandover begins a handover that a peer has asked for. The peer is told how it
// ended.
func (s *Server) takeHandover(ctx context.Context, peer *sockets.Peer) {
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

// plainReason is an error's text without the names of packages: it is put behind others.
func plainReason(err error) string {
	text := strings.TrimPrefix(err.Error(), "chp: no handover: ")
	return strings.TrimPrefix(text, "binarystar: ")
}

// handover has the other server of the pair take over, and returns when it has. The
// error's text is what the peer that asked is told.
func (s *Server) handover(ctx context.Context) error {
	if s.pair == nil {
		return errNotOfPair
	}
	return s.pair.handover(ctx)
}
