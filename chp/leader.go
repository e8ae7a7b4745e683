package chp

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"

	pairjournal "clustermap/chp/internal/journal/pair"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/state"
	"clustermap/internal/hooks"
	"clustermap/internal/store"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// following is the connection of the passive server, as the active one sees it. A goroutine
// sends it what the journal of the pair says.
type following struct {
	server *Server
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

// followedBy starts to send a peer the updates that it requests. The peer, which has
// proved who it is, replaces an earlier follower, which is the same server before its
// connection broke.
func (s *Server) followedBy(ctx context.Context, peer *sockets.Peer, r followRequest) {
	if err := checkPeerVersion(peer); err != nil {
		s.log.Warn("the other server cannot follow", "remote", peer.RemoteAddr(), "error", err)
		peer.Disconnect(err)
		return
	}
	q, p := &s.sequencer, s.pair
	f := &following{server: s, peer: peer}
	ctx, f.cancel = context.WithCancel(ctx)
	var old *following
	var works bool
	var err error
	q.Between(func(now *order.Moment) {
		old = p.following
		switch {
		case now.Passive:
			err = order.ErrNotActive
		case old != nil && old.peer == peer:
			err = errFollower // two transfers would be mixed up
		default:
			works = old != nil && old.to.Live()
			p.following = f
			f.to = p.journal.Follow(r.mapID == now.State.ID, state.Reign{ID: r.reign, Last: r.last}, now.Newest)
		}
	})
	if err != nil {
		f.cancel()
		peer.Disconnect(err)
		return
	}
	if works {
		s.log.Warn("a new follower replaces one that is still connected; are there more than two servers?",
			"remote", peer.RemoteAddr(), "before", old.peer.RemoteAddr())
	}
	if old != nil {
		old.cancel()
		old.peer.Disconnect(errReplaced)
	}
	attrs := []any{"remote", peer.RemoteAddr()}
	if by, ok := peer.Property(propertyRequester); ok {
		attrs = append(attrs, "handed_over_by", by[:min(len(by), maxRequester)])
	}
	s.log.Info("the other server follows", attrs...)
	p.sending.Go(func() {
		err := f.run(ctx)
		f.cancel()
		q.Between(func(*order.Moment) { p.journal.Lose(f.to) })
		if err != nil && ctx.Err() == nil {
			s.log.Info("the other server no longer follows", "remote", peer.RemoteAddr(), "error", err)
			peer.Disconnect(err)
		}
	})
}

// maxRequester bounds the text about a requester in the log.
const maxRequester = 128

var (
	errReplaced = errors.New("chp: the other server has connected again")
	errStuck    = errors.New("chp: the other server does not read")
	errStranger = errors.New("chp: the follower does not have the key of the other server of the pair")
	errGone     = errors.New("chp: the other server has announced its end")
	errFollower = errors.New("chp: unexpected message of the passive server")
)

// run sends what follows the follower's last update, or the whole map first, until the
// context or the connection ends.
func (f *following) run(ctx context.Context) error {
	q, j := &f.server.sequencer, f.server.pair.journal
	var part pairjournal.Part
	var head, body []byte
	for begun := false; ; begun = true {
		var more <-chan struct{}
		var whole bool
		q.Between(func(*order.Moment) {
			more = j.Next(f.to, &part)
			whole = f.to.NeedsMap()
		})
		if whole {
			if begun {
				f.server.log.Warn("sending the whole map to the other server, which fell behind")
			}
			if err := f.sendBase(ctx); err != nil {
				return err
			}
			continue
		}
		if !begun {
			err := f.control(ctx, nameTail, binary.BigEndian.AppendUint64(nil, f.server.pair.thisRun))
			if err == nil && wantsTimes(f.peer) {
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
// a time limit: see pair.judge.
func (f *following) send(ctx context.Context, wire []byte, n int, owner hooks.Owner) error {
	f.stall.sends.Add(1)
	err := hooks.SendWireTo(ctx, f.server.router, f.peer, wire, n, owner)
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
	f.server.sequencer.Between(func(now *order.Moment) {
		c = now.State.Image()
		f.server.pair.journal.Copy(f.to, now.State.Terms.Newest.Last, now.Held, now.State.Store.LiveBytes())
	})
	defer c.Release()
	h := baseHead{f.server.pair.thisRun, c.ID, c.Terms}
	if err := f.control(ctx, nameBase, h.append(nil)); err != nil {
		return err
	}
	for p := range c.Sections(basePortion) {
		var err error
		switch p.Kind {
		case state.KindMap, state.KindTerms: // in the head
		case state.KindClients:
			err = f.control(ctx, nameOrigins, p.Body)
		case state.KindRecords:
			err = f.send(ctx, p.Body, int(p.Count), nil)
		}
		if err != nil {
			return err
		}
	}
	return f.control(ctx, nameDone, nil)
}

// basePortion is the number of bytes of the map that are sent at a time.
const basePortion = 64 << 10

// hears handles a message of the other server: FOLLOW, PROOF, HAVE or BYE.
func (s *Server) hears(ctx context.Context, peer *sockets.Peer, m zmtp.WireMessage) {
	if m.Len() != 2 || s.pair == nil {
		return
	}
	name, rest := m.Next()
	body, _ := rest.Next()
	switch string(name) {
	case nameFollow:
		if r, ok := parseFollowRequest(body); ok {
			s.applies(ctx, peer, r)
		}
	case nameProof:
		s.proved(peer, body)
	case nameHave:
		if len(body) == 8 {
			s.pair.acknowledged(peer, int64(binary.BigEndian.Uint64(body)))
		}
	case nameBye:
		s.sequencer.Between(func(*order.Moment) {
			if f := s.pair.following; f != nil && f.peer == peer {
				s.pair.journal.Leave(f.to)
			}
		})
		s.pair.look()
	}
}

// acknowledged records that the other server has everything up to a sequence.
func (p *pair) acknowledged(peer *sockets.Peer, sequence int64) {
	q := &p.server.sequencer
	begins, shared := false, false
	q.Between(func(now *order.Moment) {
		if f := p.following; f != nil && f.peer == peer {
			var err error
			if begins, err = p.journal.Acknowledged(f.to, sequence, now.Newest.Last); err != nil {
				peer.Disconnect(errFollower)
			}
			shared = f.to.HasMap()
		}
	})
	if shared {
		q.Share()
	}
	q.Committed()
	if begins && p.warned.Swap(false) {
		// At the level of the line that says so of the beginning.
		p.server.log.Warn("publishing updates when the other server has them again")
	}
}

// fullest returns the fill level of the fullest queue, from 0 to 1: of the subscribers,
// or the part of the tail that was not yet sent to the other server.
func (s *Server) fullest() float64 {
	full := s.publisher.Fullest()
	if s.pair == nil {
		return full
	}
	s.sequencer.Between(func(*order.Moment) { full = max(full, s.pair.journal.Fill()) })
	return full
}
