package partner

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	pairjournal "clustermap/chp/internal/journal/pair"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/state"
	"clustermap/internal/hooks"
	"clustermap/internal/peerlog"
	"clustermap/internal/store"
	"clustermap/internal/wake"
	"clustermap/patterns/binarystar"
	"clustermap/sockets"
)

// leader is the active server's side: it sends the other server what the journal of the pair
// says, and notes what that has.
type leader struct {
	*Options
	journal *pairjournal.Journal // also the sequencer's; guarded by its mutex
	run     uint64               // of this server
	every   time.Duration        // between two looks

	running   sync.WaitGroup // goroutines of followings
	following *following     // the other server, or nil if it does not follow; guarded by the sequencer's mutex
	warned    atomic.Bool    // it has warned that it publishes updates without the other one
}

// following is the connection of the passive server, as the active one sees it. A goroutine
// sends to it.
type following struct {
	*leader
	peer   *sockets.Peer
	cancel context.CancelFunc
	to     *pairjournal.Follower // guarded by the sequencer's mutex
	stall  stall
}

// stall tells a send that has been in progress for long.
type stall struct {
	sends atomic.Uint64 // rises when a send begins and when it ends, so it is odd in between

	// Of the goroutine that looks.
	seen  uint64 // sends at the last look
	looks int    // during which one send has been in progress
}

// look counts a look, and reports whether one send has been in progress for most, given the
// time between looks.
func (s *stall) look(most, every time.Duration) bool {
	now := s.sends.Load()
	if now%2 == 0 || now != s.seen {
		s.seen, s.looks = now, 0
		return false
	}
	s.looks++
	return time.Duration(s.looks)*every >= most
}

// follow starts to send a peer the updates that it requests. The peer, which has
// proved who it is, replaces an earlier follower, which is the same server before its
// connection broke.
func (l *leader) follow(ctx context.Context, peer *sockets.Peer, r followRequest) {
	if err := checkPeerVersion(peer); err != nil {
		l.Log.Warn("the other server cannot follow", "remote", peer.RemoteAddr(), "error", err)
		peer.Disconnect(err)
		return
	}
	f := &following{leader: l, peer: peer}
	ctx, f.cancel = context.WithCancel(ctx)
	var old *following
	var works bool
	var err error
	l.Order.Between(func(now *order.Moment) {
		old = l.following
		switch {
		case now.Passive:
			err = order.ErrNotActive
		case old != nil && old.peer == peer:
			err = errFollower // two transfers would be mixed up
		default:
			works = old != nil && old.to.Live()
			l.following = f
			f.to = l.journal.Follow(r.mapID == now.State.ID, state.Reign{ID: r.reign, Last: r.last}, now.Newest)
		}
	})
	if err != nil {
		f.cancel()
		peer.Disconnect(err)
		return
	}
	if works {
		l.Log.Warn("a new follower replaces one that is still connected; are there more than two servers?",
			"remote", peer.RemoteAddr(), "before", old.peer.RemoteAddr())
	}
	if old != nil {
		old.cancel()
		old.peer.Disconnect(errReplaced)
	}
	attrs := whoIs(peer)
	if by, ok := peer.Property(propertyRequester); ok {
		attrs = append(attrs, slog.String("handed_over_by", by[:min(len(by), maxRequester)]))
	}
	l.Log.LogAttrs(ctx, slog.LevelInfo, "the other server follows", attrs...)
	l.running.Go(func() {
		err := f.feed(ctx)
		f.cancel()
		l.Order.Between(func(*order.Moment) { l.journal.Lose(f.to) })
		if err != nil && ctx.Err() == nil {
			l.Log.LogAttrs(ctx, slog.LevelInfo, "the other server no longer follows", append(whoIs(peer), slog.Any("error", err))...)
			peer.Disconnect(err)
		}
	})
}

// whoIs returns the attributes of a line of the log that say who a peer is.
func whoIs(peer *sockets.Peer) []slog.Attr {
	return append([]slog.Attr{slog.String("remote", peer.RemoteAddr())}, peerlog.Identity(peer)...)
}

var (
	errReplaced = errors.New("chp: the other server has connected again")
	errStuck    = errors.New("chp: the other server does not read")
	errGone     = errors.New("chp: the other server has announced its end")
)

// feed sends what follows the follower's last update, or the whole map first, until the
// context or the connection ends.
func (f *following) feed(ctx context.Context) error {
	var part pairjournal.Part
	var head, body []byte
	for begun := false; ; begun = true {
		var more <-chan struct{}
		var whole bool
		f.Order.Between(func(*order.Moment) {
			more = f.journal.Next(f.to, &part)
			whole = f.to.NeedsMap()
		})
		if whole {
			if begun {
				f.Log.Warn("sending the whole map to the other server, which fell behind")
			}
			if err := f.sendBase(ctx); err != nil {
				return err
			}
			continue
		}
		if !begun {
			err := f.control(ctx, nameTail, binary.BigEndian.AppendUint64(nil, f.run))
			if _, times := f.peer.Property(propertyTimes); err == nil && times {
				err = f.sendTimes(ctx)
			}
			if err != nil {
				_ = part.Each(func(*state.Head, []store.Piece) error { return err })
				return err
			}
		}
		if more != nil {
			select {
			case <-more:
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		if part.Len() == 0 {
			return errGone
		}
		err := part.Each(func(h *state.Head, pieces []store.Piece) error {
			body = h.Append(body[:0])
			head = appendControl(head[:0], nameBatch, body)
			err := f.send(ctx, head, 1, nil)
			for _, p := range pieces {
				if err == nil {
					err = f.send(ctx, p.Wire(), p.Records, p.Segment)
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
}

// send sends messages in wire form. While the follower keeps reading, it waits without
// a time limit: see leader.check.
func (f *following) send(ctx context.Context, wire []byte, n int, owner hooks.Owner) error {
	f.stall.sends.Add(1)
	err := hooks.SendWireTo(ctx, f.Router, f.peer, wire, n, owner)
	f.stall.sends.Add(1)
	return err
}

// control sends a message of two frames.
func (f *following) control(ctx context.Context, name string, body []byte) error {
	return f.send(ctx, appendControl(nil, name, body), 1, nil)
}

// sendBase sends the whole map as of a cut; the tail continues it. The tail keeps the
// updates that arrive meanwhile until the follower has caught up. Otherwise the map
// would have to be sent again, and again while clients write as fast. They may use as
// much memory as the map.
func (f *following) sendBase(ctx context.Context) error {
	var c *state.Image
	f.Order.Between(func(now *order.Moment) {
		c = now.State.Image()
		f.journal.Copy(f.to, now.State.Terms.Newest.Last, now.Held, now.State.Store.LiveBytes())
	})
	defer c.Release()
	h := baseHead{f.run, c.ID, c.Terms}
	if err := f.control(ctx, nameBase, h.append(nil)); err != nil {
		return err
	}
	for p := range c.Sections(basePortion) {
		var err error
		switch p.Kind {
		case state.KindMap, state.KindTerms: // in the head
		case state.KindClients:
			err = f.control(ctx, nameOrigins, p.Body)
		case state.KindHistory:
			err = f.control(ctx, nameHistory, p.Body)
		case state.KindRequests:
			err = f.control(ctx, nameMade, p.Body)
		case state.KindRecords:
			err = f.send(ctx, p.Body, int(p.Count), nil)
		}
		if err != nil {
			return err
		}
	}
	return f.control(ctx, nameDone, nil)
}

// acknowledged records that the other server has everything up to a sequence.
func (l *leader) acknowledged(peer *sockets.Peer, sequence int64) {
	begins, shared := false, false
	l.Order.Between(func(now *order.Moment) {
		if f := l.following; f != nil && f.peer == peer {
			var err error
			if begins, err = l.journal.Acknowledged(f.to, sequence, now.Newest.Last); err != nil {
				peer.Disconnect(errFollower)
			}
			shared = f.to.HasMap()
		}
	})
	if shared {
		l.Order.Share()
	}
	l.Order.Committed()
	if begins && l.warned.Swap(false) {
		// At the level of the line that says so of the beginning.
		l.Log.Warn("publishing updates when the other server has them again")
	}
}

// leave records that the other server has announced its end.
func (l *leader) leave(peer *sockets.Peer) {
	l.Order.Between(func(*order.Moment) {
		if f := l.following; f != nil && f.peer == peer {
			l.journal.Leave(f.to)
		}
	})
}

// lose handles the end of a connection.
func (l *leader) lose(peer *sockets.Peer) {
	l.Order.Between(func(*order.Moment) {
		if f := l.following; f != nil && f.peer == peer {
			l.journal.Lose(f.to)
			f.cancel()
		}
	})
}

// yield ends all that concerns the other server, because this one is no longer active.
func (l *leader) yield() {
	var f *following
	l.Order.Between(func(*order.Moment) {
		l.journal.Yield()
		f, l.following = l.following, nil
	})
	if f != nil {
		f.cancel()
		f.peer.Disconnect(order.ErrNotActive)
	}
}

// check stops waiting for a follower that has announced its end or has acknowledged
// nothing for the time-out. A follower to which one send has lasted for SnapshotTimeout is disconnected,
// because it may hold a cut of the map. look reports that the interval between looks has
// passed, and heard is false while the silence may be due to this server. overdue says
// whether to go on alone after a number of looks in which nothing was acknowledged.
//
// Time is counted in looks. If this process was stopped, the other server may have
// become active, and this one must not publish updates that only it has. It then has
// the time-out to receive the other's state. The same holds for the time in which this
// server may have been isolated, and updates are held.
func (l *leader) check(look, heard bool, overdue func(idle int) bool) {
	l.Order.Between(func(now *order.Moment) {
		f := l.following
		if f == nil {
			return
		}
		if look && f.to.Progress != pairjournal.ProgressLost && f.stall.look(l.SnapshotTimeout, l.every) {
			l.journal.Lose(f.to)
			f.cancel()
			f.peer.Disconnect(errStuck)
			l.Log.Warn("disconnected the other server, which does not read", "remote", f.peer.RemoteAddr())
		}
		l.journal.Look(now.Newest.Last, look, heard)
		if !l.journal.Waits() {
			return
		}
		left := f.to.Progress == pairjournal.ProgressLeft
		if !left && !overdue(f.to.Idle) {
			return
		}
		level := slog.LevelWarn
		if left {
			level = slog.LevelInfo // it was stopped
		}
		l.warned.Store(!left)
		// First, so that the log has it even if this process ends now.
		l.Log.Log(context.Background(), level, "publishing updates without the other server")
		l.journal.Alone()
	})
	l.Order.Committed()
}

// live returns the follower, or nil if it is not connected or has announced its end.
func (l *leader) live() (f *following) {
	if f = l.following; f != nil && !f.to.Live() {
		f = nil
	}
	return f
}

// drain waits until a follower has the map and has returns true; has is called between two
// batches. It fails if the follower is gone or makes no progress for most. Time is counted
// in looks, as in check: the time between two looks counts up to drainGap.
func (l *leader) drain(ctx context.Context, f *following, most time.Duration, has func(*order.Moment) bool) error {
	have, sends, idle := int64(-1), uint64(0), time.Duration(0)
	for last := time.Now(); ; {
		var done, gone bool
		l.Order.Between(func(now *order.Moment) {
			if n := f.stall.sends.Load(); f.to.Have != have || n != sends {
				have, sends, idle = f.to.Have, n, 0
			}
			done, gone = f.to.HasMap() && has(now), l.live() != f
		})
		switch {
		case done:
			return nil
		case gone || idle > most:
			return binarystar.ErrNoSuccessor
		case !wake.Pause(ctx, drainLook):
			return ctx.Err()
		}
		now := time.Now()
		idle += min(now.Sub(last), drainGap)
		last = now
	}
}
