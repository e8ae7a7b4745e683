package chp

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/state"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// following is the connection of the passive server, as the active one sees it: a
// position in the tail. A goroutine sends the batches after it.
type following struct {
	server *Server
	peer   *sockets.Peer
	cancel context.CancelFunc

	// Guarded by the sequencer's mutex.
	position uint64 // of the next batch to send
	sent     int64  // all updates up to this sequence were sent
	have     int64  // all updates up to this sequence were acknowledged
	idle     int    // looks since have last increased or nothing was unacknowledged
	base     int64  // sequence of the last map that was sent, or 0
	hasMap   bool   // it has acknowledged the map
	behind   int    // looks since then while updates do not wait for it
	gone     bool   // the connection has ended or is about to
	bye      bool   // it has announced its end
	seen     uint64 // sends at the last look
	stuck    int    // looks during which one send has been in progress

	sends atomic.Uint64 // rises when a send begins and when it ends, so it is odd in between
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
	q := &s.sequencer
	f := &following{server: s, peer: peer}
	ctx, f.cancel = context.WithCancel(ctx)
	q.mu.Lock()
	old := q.follower
	var err error
	switch {
	case q.passive:
		err = errNotActive
	case old != nil && old.peer == peer:
		err = errFollower // two transfers would be mixed up
	}
	if err != nil {
		q.mu.Unlock()
		f.cancel()
		peer.Disconnect(err)
		return
	}
	if old != nil {
		f.idle = old.idle
	}
	works := old != nil && !old.gone && !old.bye
	q.follower = f
	q.tail.most = 0
	q.mu.Unlock()
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
	s.pair.sending.Go(func() {
		err := f.run(ctx, r)
		f.cancel()
		q.mu.Lock()
		f.gone = true
		if q.follower == f {
			q.tail.most = 0
		}
		q.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			s.log.Info("the other server no longer follows", "remote", peer.RemoteAddr(), "error", err)
			peer.Disconnect(err)
		}
	})
}

// maxRequester bounds the text about a requester in the log.
const maxRequester = 128

var (
	errNotActive = errors.New("chp: this server is not the active one")
	errReplaced  = errors.New("chp: the other server has connected again")
	errStuck     = errors.New("chp: the other server does not read")
	errStranger  = errors.New("chp: the follower does not have the key of the other server of the pair")
	errFollower  = errors.New("chp: unexpected message of the passive server")
)

// run sends the tail from the follower's position on, or the whole map first, until the
// context or the connection ends.
func (f *following) run(ctx context.Context, r followRequest) error {
	q := &f.server.sequencer
	q.mu.Lock()
	position, ok := q.resume(r)
	f.position = position
	if ok {
		f.sent = r.last
	}
	q.mu.Unlock()
	if ok {
		if err := f.control(ctx, nameTail, binary.BigEndian.AppendUint64(nil, f.server.pair.thisRun)); err != nil {
			return err
		}
	}
	var part tailPart
	var head, body []byte
	for {
		if !ok {
			if err := f.sendBase(ctx); err != nil {
				return err
			}
		}
		q.mu.Lock()
		ok = q.tail.read(f.position, followPortion, &part)
		var more <-chan struct{}
		n := len(part.batches)
		if n == 0 {
			more = q.tail.more()
		} else {
			f.sent = part.batches[n-1].Last()
		}
		f.position += uint64(n)
		if q.tail.most > 0 && q.follower == f {
			q.tail.caughtUp(f.position)
		}
		q.mu.Unlock()
		if !ok {
			f.server.log.Warn("sending the whole map to the other server, which fell behind")
			continue
		}
		if more != nil {
			select {
			case <-more:
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		var err error
		pieces := part.pieces
		for i := range part.batches {
			b := &part.batches[i]
			body = b.Head.Append(body[:0])
			head = appendControl(head[:0], nameBatch, body)
			if err == nil {
				err = f.send(ctx, head, 1, nil)
			}
			for _, p := range pieces[:b.pieces] {
				if err == nil {
					err = f.send(ctx, p.Wire(), p.Records, p.Segment)
				}
				p.Segment.Release()
			}
			pieces = pieces[b.pieces:]
		}
		clear(part.pieces)
		if err != nil {
			return err
		}
	}
}

// followPortion is the number of bytes of the tail that are read at a time.
const followPortion = 1 << 20

// send sends messages in wire form. While the follower keeps reading, it waits without
// a time limit: see pair.judge.
func (f *following) send(ctx context.Context, wire []byte, n int, owner sockets.Owner) error {
	f.sends.Add(1)
	err := f.server.router.SendWire(ctx, f.peer, wire, n, owner)
	f.sends.Add(1)
	return err
}

// control sends a message of two frames.
func (f *following) control(ctx context.Context, name string, body []byte) error {
	return f.send(ctx, appendControl(nil, name, body), 1, nil)
}

// standsStill counts a look, and reports whether one send has been in progress for
// most, given the time between looks. mu must be held.
func (f *following) standsStill(most, look time.Duration) bool {
	now := f.sends.Load()
	if now%2 == 0 || now != f.seen {
		f.seen, f.stuck = now, 0
		return false
	}
	f.stuck++
	return time.Duration(f.stuck)*look >= most
}

// sendBase sends the whole map as of a cut; the tail continues it. The tail keeps the
// updates that arrive meanwhile until the follower has caught up. Otherwise the map
// would have to be sent again, and again while clients write as fast. They may use as
// much memory as the map.
func (f *following) sendBase(ctx context.Context) error {
	q := &f.server.sequencer
	q.mu.Lock()
	c := q.state.Image()
	h := baseHead{f.server.pair.thisRun, c.ID, c.Terms}
	f.position = q.tail.end() - uint64(q.held.size()) // what is held follows the map
	f.sent, f.base, f.hasMap = q.state.Terms.Newest.Last, q.state.Terms.Newest.Last, false
	if q.follower == f {
		q.tail.keepFrom(f.position, q.state.Store.LiveBytes())
	}
	q.mu.Unlock()
	defer c.Release()
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

// resume returns the position in the tail after a follower's last update, and false if
// the follower needs the whole map. mu must be held.
func (q *sequencer) resume(r followRequest) (position uint64, ok bool) {
	if r.mapID != q.state.ID {
		return 0, false
	}
	if position, ok = q.tail.behind(r.reign, r.last); ok {
		return position, true
	}
	return q.tail.end(), q.order.reigns.Newest == state.Reign{ID: r.reign, Last: r.last}
}

// hears handles a message of the other server: FOLLOW, PROOF, HAVE or BYE.
func (s *Server) hears(ctx context.Context, peer *sockets.Peer, m zmtp.WireMessage) {
	if m.Len() != 2 || s.pair == nil {
		return
	}
	name, rest := m.Next()
	body, _ := rest.Next()
	q := &s.sequencer
	switch string(name) {
	case nameFollow:
		if r, ok := parseFollowRequest(body); ok {
			s.applies(ctx, peer, r)
		}
	case nameProof:
		s.proved(peer, body)
	case nameHave:
		if len(body) == 8 {
			if q.acknowledged(peer, int64(binary.BigEndian.Uint64(body))) && s.pair.warned.Swap(false) {
				// At the level of the line that says so of the beginning.
				s.log.Warn("publishing updates when the other server has them again")
			}
		}
	case nameBye:
		q.mu.Lock()
		if f := q.follower; f != nil && f.peer == peer {
			f.bye = true
		}
		q.mu.Unlock()
		s.pair.look()
	}
}

// caughtUp is the number of updates that a follower may be behind for updates to wait
// for it from then on. If it has the map and stays further behind for the time-out,
// updates wait for it all the same: otherwise it would never catch up with clients that
// write as fast as it can read.
const caughtUp = 1 << 14

// acknowledged records that a follower has everything up to a sequence, and reports whether
// updates wait for it from then on.
func (q *sequencer) acknowledged(peer *sockets.Peer, sequence int64) (waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f := q.follower
	switch {
	case f == nil || f.peer != peer || sequence < f.have:
		return false
	case sequence > f.sent:
		peer.Disconnect(errFollower)
		return false
	}
	f.have, f.hasMap = sequence, sequence >= f.base
	if f.have > q.commits.acked {
		// Only this is progress: updates must not wait forever for a follower that
		// reconnects again and again and acknowledges nothing.
		q.commits.acked, f.idle = f.have, 0
	}
	if !q.commits.peer && q.acks > 1 && f.hasMap && !f.gone && !f.bye &&
		(q.order.reigns.Newest.Last-f.have < caughtUp || f.behind > looksPerTimeout) {
		q.commits.peer, f.behind, waits = true, 0, true
	}
	q.commit()
	return waits
}

// alone makes updates commit without the other server. mu must be held.
func (q *sequencer) alone() {
	q.commits.peer = false
	q.commit()
}

// fullest returns the fill level of the fullest queue, from 0 to 1: of the subscribers,
// or the part of the tail that was not yet sent to the other server.
func (s *Server) fullest() float64 {
	full := s.publisher.Fullest()
	if s.pair == nil {
		return full
	}
	q := &s.sequencer
	q.mu.Lock()
	defer q.mu.Unlock()
	if f := q.follower; f != nil && !f.gone {
		full = max(full, q.tail.fill(f.position))
	}
	return full
}
