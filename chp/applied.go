package chp

import (
	"clustermap/internal/mutate"
	"clustermap/sockets"
	"context"
)

// sender describes the client that sent a batch. The zero sender does not number its
// updates.
type sender struct {
	id       clientID
	numbered bool    // the sequence fields hold order numbers, or 0
	every    int     // report its progress after this many bytes of updates; 0 means never
	member   *member // nil if it is no longer known
}

// matters reports whether the peer numbers its updates: then a number out of order is
// an error.
func (o *numberOrder) matters(p *sockets.Peer) bool {
	if !o.ignored {
		o.ignored = !senderOf(p, nil).numbered
	}
	return !o.ignored
}

// setMapID sets the identity of the map. Two servers, or two runs of one, have the same
// identity if one continues with the other's map and origins.
func (s *Server) setMapID(id [mapIDSize]byte) {
	s.sequencer.mu.Lock()
	s.sequencer.state.id = id
	s.sequencer.mu.Unlock()
}

// applied returns the APPLIED message for a client, in wire form. It may be sent when
// everything up to sequence is published.
func (s *Server) applied(id clientID) (wire []byte, sequence int64) {
	q := &s.sequencer
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.state.clients.applied(id, q.state.id)
	if mutate.NoRepeatCheck {
		a.known, a.counter = true, 0
	}
	return appendApplied(nil, a), q.state.last()
}

// appliedSoon waits until the message that applied returns may be sent, and returns it.
func (s *Server) appliedSoon(ctx context.Context, id clientID) ([]byte, error) {
	wire, sequence := s.applied(id)
	for more := s.sequencer.unpublished(sequence); more != nil; more = s.sequencer.unpublished(sequence) {
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return wire, nil
}
