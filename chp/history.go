package chp

import (
	"context"
	"errors"
	"time"

	"clustermap/chp/internal/follow"
	"clustermap/chp/internal/history"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/watch"
	"clustermap/chp/internal/wire"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/wake"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// ErrNoHistory is returned for a server that keeps no versions of keys: one of this package
// without ServerOptions.History, or of another implementation.
var ErrNoHistory = follow.ErrNoHistory

// Version is an update of a key, as [Client.History] returns it.
type Version struct {
	Op    Op     // OpSet or OpDelete
	Cause Cause  // CauseSet, CauseDeleted or CauseExpired
	Value []byte // OpSet

	// Properties are those of the update. A ttl among them is the time to live that it gave.
	Properties Properties

	Sequence int64

	// Time is when the server accepted the update, by its clock, and By who sent it. By is ""
	// without ServerOptions.Stamp, and if the author was not authenticated. Time is zero for
	// an update from before the server kept a history, and for one that it had dropped.
	Time time.Time
	By   string
}

// History returns the versions of a key that the server keeps, oldest first, deletions
// included: up to ServerOptions.History, and fewer if ServerOptions.HistoryBytes is exceeded.
// The last one is what the key is now. It returns none for a key that was never set, or not for
// so long that its versions are dropped. The key need not be in the client's subtrees.
//
// It waits until the client is ACTIVE. If the connection breaks, it asks the next server that the
// client follows. Its error is ErrNoHistory, at once, for a server that keeps no history, and
// that of [Client.WaitActive] if the context ends without a server.
func (c *Client) History(ctx context.Context, key string) ([]Version, error) {
	if err := kvmsg.ValidKey(bytesOf(key)); err != nil {
		return nil, err
	}
	for {
		if err := c.WaitActive(ctx); err != nil {
			return nil, err
		}
		all, err := c.askHistory(ctx, key)
		switch {
		case errors.Is(err, follow.ErrDisconnected) && ctx.Err() == nil:
			continue // WaitActive waits for the next server
		case err != nil && ctx.Err() != nil:
			return nil, c.explain(ctx.Err())
		}
		return all, err
	}
}

// askHistory asks one server, in portions.
func (c *Client) askHistory(ctx context.Context, key string) (all []Version, err error) {
	after, more := int64(-1), true
	for more {
		var body []byte
		if body, more, err = c.follower.History(ctx, key, after); err != nil {
			return nil, err
		}
		records, at, ok := history.Parse(body)
		if !ok || more && len(records) == 0 {
			return nil, follow.ErrNotCHP
		}
		for i, r := range records {
			if r.Seq() <= after {
				return nil, follow.ErrNotCHP
			}
			after = r.Seq()
			all = append(all, versionOf(history.Version{Sequence: after, At: at[i], Properties: r.Props(), Value: r.Value()}))
		}
	}
	return all, nil
}

// History returns the versions of a key that the server keeps, as [Client.History] does.
func (s *Server) History(key string) ([]Version, error) {
	if err := kvmsg.ValidKey(bytesOf(key)); err != nil {
		return nil, err
	}
	if s.opts.History < 2 {
		return nil, ErrNoHistory
	}
	var all []Version
	for _, v := range s.versions(bytesOf(key)) {
		all = append(all, versionOf(v))
	}
	return all, nil
}

func versionOf(v history.Version) Version {
	op, cause := watch.KindOf(v.Value, v.Properties)
	_, by, _ := kvmsg.Properties(v.Properties).Stamped()
	value := v.Value
	if len(value) == 0 {
		value = nil
	}
	return Version{op, cause, value, v.Properties, v.Sequence, v.At, by}
}

// versions returns the versions of a key: those of the history and, if that has dropped it, the
// newest one from the map.
func (s *Server) versions(key []byte) (all []history.Version) {
	s.sequencer.Between(func(now *order.Moment) {
		all = now.State.History.Versions(key)
		cut, list := now.State.Store.CutKey(key)
		defer cut.Release()
		for _, at := range list {
			r := cut.Record(at)
			if n := len(all); n > 0 && all[n-1].Sequence >= r.Seq() {
				continue
			}
			v := history.Version{Sequence: r.Seq(), Properties: append([]byte(nil), r.Props()...), Value: append([]byte(nil), r.Value()...)}
			v.At, _, _ = kvmsg.Properties(v.Properties).Stamped()
			all = append(all, v)
		}
	})
	return all
}

// answerHistory answers a question about the versions of a key, and reports whether the message
// was one. It does not block.
func (s *Server) answerHistory(peer *sockets.Peer, m zmtp.WireMessage) bool {
	number, key, after, ok := wire.ParseHistoryQuestion(m)
	if !ok || s.opts.History < 2 || !wire.Ours(peer) {
		return false
	}
	all := s.versions(key)
	for len(all) > 0 && all[0].Sequence <= after {
		all = all[1:]
	}
	body, n := history.AppendVersions(nil, key, all, historyAnswer)
	answer := wire.AppendHistory(nil, number, n < len(all), body)
	if err := hooks.SendWireTo(wake.Ended, s.router, peer, answer, 1, nil); err != nil {
		s.log.Debug("no answer sent", "remote", peer.RemoteAddr(), "answer", "HISTORY", "error", err)
	}
	return true
}
