package chp

import (
	"context"
	"errors"
	"strings"

	"clustermap/internal/kvmsg"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// request is one ICANHAZ of one client.
type request struct {
	peer *sockets.Peer
	want want
}

// want describes the snapshot that a client requests. Clients with equal wants are sent
// the same bytes.
type want struct {
	subtree string
	exact   bool // only the key named by subtree; for clients of this package
	full    bool // with UUID and properties; for clients of this package
	three   bool // messages of three frames: see Model
}

// Errors for invalid snapshot requests.
var (
	errRequest      = errors.New("chp: not a snapshot request: want two frames, ICANHAZ? and a subtree")
	errWholeRequest = errors.New("chp: not a snapshot request: want one frame, ICANHAZ?")
)

// runRequests handles the messages to the ROUTER: snapshot requests, questions, and the
// messages of the other server of a pair.
func (s *Server) runRequests(ctx context.Context) {
	var b sockets.Batch
	defer b.Release()
	defer s.handovers.running.Wait()
	for s.router.RecvBatch(ctx, &b) == nil {
		other := s.pair != nil && announces(b.Peer(), propertyPeer)
		for i := range b.Len() {
			if other {
				s.hears(ctx, b.Peer(), b.Message(i))
				continue
			}
			if s.answerQuestion(ctx, b.Peer(), b.Message(i)) {
				continue
			}
			w, err := s.dialect.parseRequest(b.Message(i), announces(b.Peer(), propertyCHP))
			switch {
			case err != nil:
			case s.pair != nil && !s.pair.active.Load():
				err = s.pair.park(ctx, request{b.Peer(), w})
			default:
				err = s.snapshots.add(ctx, request{b.Peer(), w})
			}
			if err != nil {
				s.snapshots.refused.Add(1)
				s.log.Debug("snapshot request refused", "remote", b.Peer().RemoteAddr(), "error", err)
			}
		}
	}
}

// parseRequest parses an ICANHAZ. A client of this package may name a key instead of a
// subtree.
func parseRequest(m zmtp.WireMessage, ours bool) (want, error) {
	command, rest := m.Next()
	if string(command) != "ICANHAZ?" || len(rest) == 0 {
		return want{}, errRequest
	}
	subtree, rest := rest.Next()
	if len(rest) > 0 {
		return want{}, errRequest
	}
	w := want{subtree: string(subtree), full: ours}
	switch {
	case w.subtree == "" || isSubtree(w.subtree):
		return w, nil
	case ours && len(w.subtree) <= kvmsg.MaxKey:
		w.exact = true
		return w, nil
	}
	return want{}, errRequest
}

// isSubtree reports whether s is a slash, path segments, and a slash (RFC 12, State
// Synchronization).
func isSubtree(s string) bool {
	return len(s) >= 2 && len(s) <= kvmsg.MaxKey && strings.HasPrefix(s, "/") && strings.HasSuffix(s, "/")
}
