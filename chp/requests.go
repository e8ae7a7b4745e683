package chp

import (
	"context"

	"clustermap/chp/internal/order"
	"clustermap/chp/internal/partner"
	"clustermap/chp/internal/snapshot"
	"clustermap/chp/internal/state"
	"clustermap/chp/internal/wire"
	"clustermap/internal/hooks"
	"clustermap/internal/store"
	"clustermap/sockets"
)

// runRequests handles the messages to the ROUTER: snapshot requests, questions, and the
// messages of the other server of a pair.
func (s *Server) runRequests(ctx context.Context) {
	var b sockets.Batch
	defer b.Release()
	defer s.handovers.running.Wait()
	for s.router.RecvBatch(ctx, &b) == nil {
		other := s.pair != nil && partner.Announces(b.Peer())
		for i := range b.Len() {
			if other {
				s.pair.Hears(ctx, b.Peer(), b.Message(i))
				continue
			}
			if s.answerQuestion(ctx, b.Peer(), b.Message(i)) {
				continue
			}
			w, err := s.dialect.ParseRequest(b.Message(i), wire.Ours(b.Peer()))
			switch {
			case err != nil:
			case s.pair != nil && !s.pair.Active():
				err = s.pair.Park(ctx, b.Peer(), w)
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

// snapshotSource is the server as the source of snapshots.
type snapshotSource struct{ *Server }

func newSnapshots(s *Server) *snapshot.Server {
	return snapshot.New(snapshotSource{s}, snapshot.Options{Memory: s.opts.SnapshotMemory, Timeout: s.opts.SnapshotTimeout, Send: func(ctx context.Context, peer *sockets.Peer, wire []byte, messages int, owner hooks.Owner) error {
		return hooks.SendWireTo(ctx, s.router, peer, wire, messages, owner)
	}})
}

func (s snapshotSource) Cut() state.Cut { return s.sequencer.Cut() }

func (s snapshotSource) CutKey(key string) (c state.Cut, list []store.Position) {
	s.sequencer.Between(func(now *order.Moment) {
		c.Cut, list = now.State.Store.CutKey(bytesOf(key))
		c.Sequence, c.Deadlines = now.State.Last(), &now.State.Deadlines
	})
	return c, list
}

func (s snapshotSource) Fresh(sequence int64) bool { return sequence == s.base }

func (s snapshotSource) Map() *store.Map { return s.sequencer.Current().Store }

func (s snapshotSource) LogBytes() (n int) {
	s.sequencer.Between(func(now *order.Moment) { n = now.State.Store.LogBytes() })
	return n
}

func (s snapshotSource) Progress(peer *sockets.Peer) []byte { return s.members.Reply(peer) }
