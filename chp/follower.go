package chp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"clustermap/chp/internal/follow"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/state"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/mutate"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// follower is one connection of a passive server to the active server of its pair. It
// applies the active server's updates with their sequences to its own map, log and
// tail. One goroutine uses it; prepare and watch run in goroutines of the socket.
type follower struct {
	server *Server
	ctx    context.Context
	fail   context.CancelCauseFunc
	dealer *sockets.Dealer

	base    *base      // the map that is being received, or nil
	copying bool       // a copy of the map has begun and is not installed
	follows bool       // this server has the active server's map
	head    state.Head // of the batch that is being received; count is 0 between batches
	wire    []byte     // the updates of that batch so far, if it arrives in several parts
	spans   []buf.Span
	news    bool // updates were received and not yet acknowledged
}

// base is a map that is being received.
type base struct {
	baseHead
	*order.Copy
}

// controlTag marks a span as a message of two frames. A key can have the same tag by
// chance; the number of frames decides.
const controlTag = math.MaxUint64 - 2

// errFollow ends the connection to an active server that violates the protocol.
var errFollow = errors.New("chp: unexpected message of the active server")

// errOlder ends the connection to an active server that lacks updates of this one, and
// has no others that count more. The state messages, which may arrive later than the map,
// make this server the active one.
var errOlder = errors.New("chp: the active server has an older map than this one")

// errBase ends the connection to an active server whose map is larger than this server
// may hold.
var errBase = errors.New("chp: the active server's map exceeds this server's MaxMapBytes, which both servers of a pair need alike")

// outranks reports whether this server's map is not to be replaced by another one.
func (s *Server) outranks(h *baseHead) bool {
	var theirs state.Reigns
	theirs.Set(h.reigns)
	ours, _ := s.sequencer.Standing()
	return state.Compare(ours, theirs.Accepted()) > 0 && !mutate.CopyAnyMap
}

// follow follows the active server until ctx ends, and reconnects when the connection
// breaks. serving ends with the server.
func (s *Server) follow(ctx, serving context.Context) {
	complaints := follow.Complaints()
	wait, since := followAgain, time.Now()
	for ctx.Err() == nil {
		f := &follower{server: s}
		err := f.follow(ctx, serving)
		if ctx.Err() != nil {
			return
		}
		level := slog.LevelInfo // normally the active server has ended
		if f.follows {
			since = time.Now()
		} else if time.Since(since) > s.pair.timeout {
			level = slog.LevelWarn
		}
		if due, _ := complaints.Due(level.String(), follow.Cause(err), time.Now()); due {
			s.log.Log(ctx, level, "does not follow the active server", "server", s.opts.Pair.Peer, "error", err)
		}
		if !wake.Pause(ctx, wait) {
			return
		}
		wait = min(2*wait, followAgainMost)
		if !f.copying {
			wait = followAgain
		}
	}
}

// followAgain is the wait of a passive server before it reconnects. The wait doubles,
// up to followAgainMost, each time a copy of the map was not completed: the cause may
// be this server's log, and every copy is work for the active server.
const (
	followAgain     = 50 * time.Millisecond
	followAgainMost = 5 * time.Second
)

// follow runs one connection to the active server.
func (f *follower) follow(ctx, serving context.Context) error {
	f.ctx, f.fail = context.WithCancelCause(ctx)
	defer f.fail(nil)
	s := f.server
	o := s.opts.Pair
	timeout := s.pair.timeout
	properties := wire.Properties()
	properties[propertyPeer] = peerVersion
	if requester := s.handovers.requested.Load(); requester != nil {
		properties[propertyRequester] = strings.TrimSpace(requester.RemoteAddr() + " " + keyText(requester))
	}
	var asks followRequest
	s.sequencer.Between(func(now *order.Moment) {
		asks = followRequest{now.State.ID, now.Newest.ID, now.Newest.Last}
		if s.restored > 0 && now.State.Deadlines.Len() > 0 {
			properties[propertyTimes] = peerVersion
		}
	})
	var err error
	f.dealer, err = sockets.NewDealer(sockets.Options{
		Security: s.pair.security(), Metadata: properties,
		ReconnectInterval: sockets.ReconnectNever, ConnectTimeout: max(timeout, time.Second), HandshakeTimeout: max(timeout, time.Second),
		HeartbeatInterval: max(timeout/2, 10*time.Millisecond), HeartbeatTimeout: max(timeout, 50*time.Millisecond),
		RecvHWM: sockets.Unlimited, RecvHWMBytes: followWindow, Linger: byeTime,
		Monitor: f.watch,
	})
	if err != nil {
		return err
	}
	defer f.dealer.CloseContext(wake.Ended)
	hooks.Prepare(f.dealer, f.prepare)
	hooks.Scan(f.dealer, wire.ScanUpdate)
	if err := f.dealer.Connect(o.Peer); err != nil {
		return err
	}
	err = f.dealer.Send(f.ctx, []byte(nameFollow), asks.append(nil))
	var b hooks.Batch
	defer b.Release()
	for err == nil {
		if err = f.dealer.RecvBatch(f.ctx, (*sockets.Batch)(&b)); err == nil {
			err = f.receive(b.Wire(), b.Spans())
		}
	}
	if cause := context.Cause(f.ctx); cause != nil && ctx.Err() == nil {
		err = cause
	}
	if serving.Err() != nil {
		// Tell the active server not to wait for this one.
		soon, cancel := context.WithTimeout(context.Background(), byeTime)
		defer cancel()
		_ = f.dealer.Send(soon, []byte(nameBye), nil) // without it the active server notices later
		_ = f.dealer.CloseContext(soon)
	}
	return err
}

// byeTime bounds the time that a server that ends spends on sending its BYE.
const byeTime = 100 * time.Millisecond

// followWindow bounds the bytes that a passive server receives before it applies them.
const followWindow = 4 << 20

func (f *follower) watch(e sockets.Event) {
	switch e.Kind {
	case sockets.EventHandshakeSucceeded:
		if err := checkPeerVersion(e.Peer); err != nil {
			f.fail(err)
		}
	case sockets.EventHandshakeFailed, sockets.EventDisconnected, sockets.EventConnectFailed:
		err := e.Err
		if err == nil {
			err = ErrDisconnected
		}
		f.fail(fmt.Errorf("chp: lost the connection to the active server: %w", err))
	}
}

// prepare checks and hashes messages in the goroutine that reads the connection.
func (f *follower) prepare(b *hooks.Batch) {
	wire, spans := b.Wire(), b.Spans()
	for i := range spans {
		if spans[i].Tag != 0 {
			continue // found by scanUpdate
		}
		m := wire[spans[i].Start:spans[i].End]
		if _, _, control := parseControl(m); control {
			spans[i].Tag = controlTag
			continue
		}
		size, tag, kind, err := kvmsg.Inspect(m, kvmsg.FromServer, 0)
		if err != nil || kind != kvmsg.KindUpdate {
			f.fail(errFollow)
			b.SetSpans(spans[:i])
			return
		}
		spans[i].End = spans[i].Start + uint32(size)
		spans[i].Tag = tag
	}
}

// receive handles messages, and acknowledges the server's new last update.
func (f *follower) receive(wire []byte, spans []buf.Span) error {
	for len(spans) > 0 {
		m := wire[spans[0].Start:spans[0].End]
		if spans[0].Tag == controlTag {
			if name, body, ok := parseControl(m); ok {
				if err := f.control(name, body); err != nil {
					return err
				}
				spans = spans[1:]
				continue
			}
		}
		n := 1
		for n < len(spans) && spans[n].Tag != controlTag {
			n++
		}
		if f.base == nil {
			n = min(n, int(f.head.Count)-len(f.spans))
			if n <= 0 {
				return errFollow
			}
		}
		if err := f.records(wire, spans[:n]); err != nil {
			return err
		}
		spans = spans[n:]
	}
	if !f.news {
		return nil
	}
	f.news = false
	q := &f.server.sequencer
	if err := q.Journal().Stored(f.ctx); err != nil {
		return err
	}
	var last int64
	q.Between(func(now *order.Moment) { last = now.State.Terms.Newest.Last })
	return f.dealer.Send(f.ctx, []byte(nameHave), binary.BigEndian.AppendUint64(nil, uint64(last)))
}

// control handles a message of two frames.
func (f *follower) control(name string, body []byte) error {
	if len(f.spans) > 0 || f.head.Count > 0 {
		return errFollow // in the middle of a batch
	}
	switch name {
	case nameTail:
		if f.base != nil || len(body) != 8 {
			return errFollow
		}
		f.server.sequencer.Copies(binary.BigEndian.Uint64(body))
		f.server.pair.copied.Store(true)
		f.news, f.follows = true, true
		f.server.handovers.requested.Store(nil)
		return nil
	case nameTimes:
		if f.base != nil {
			return errFollow
		}
		return f.times(body)
	case nameBase:
		h, ok := parseBaseHead(body)
		if !ok || f.base != nil {
			return errFollow
		}
		if f.server.outranks(&h) {
			return errOlder
		}
		f.copying = true
		f.base = &base{h, f.server.sequencer.NewCopy(h.run, h.mapID, h.reigns)}
		f.server.log.Info("copying the active server's map")
		return nil
	case nameOrigins:
		if f.base == nil || f.base.State.Restore(state.Section{Kind: state.KindClients, Body: body}, 0) != nil {
			return errFollow
		}
		return nil
	case nameDone:
		if f.base == nil {
			return errFollow
		}
		b := f.base
		f.base, f.news = nil, true
		err := f.server.install(f.ctx, b)
		f.copying = err != nil
		if f.follows = err == nil; f.follows {
			f.server.handovers.requested.Store(nil)
		}
		return err
	case nameChallenge:
		if len(body) != nonceSize {
			return errFollow
		}
		return f.dealer.Send(f.ctx, []byte(nameProof), f.server.pair.proofs.prove(body))
	case nameBatch:
		h, ok := state.ParseHead(body)
		if !ok || f.base != nil {
			return errFollow
		}
		f.head = h
		return nil
	}
	return nil // of a later version
}

// records handles updates, of the map that is being received or of a batch. A batch is
// applied as a whole.
func (f *follower) records(wire []byte, spans []buf.Span) error {
	if f.base != nil {
		if !f.base.Records(wire, spans) {
			return errBase
		}
		return nil
	}
	if whole := len(f.spans) == 0 && len(spans) == int(f.head.Count); !whole {
		for _, s := range spans {
			start := len(f.wire)
			f.wire = append(f.wire, wire[s.Start:s.End]...)
			f.spans = append(f.spans, buf.Span{Start: uint32(start), End: uint32(len(f.wire)), Tag: s.Tag})
		}
		if len(f.wire) > maxPartial {
			return errFollow
		}
		if len(f.spans) < int(f.head.Count) {
			return nil
		}
		wire, spans = f.wire, f.spans
	}
	h := f.head
	f.head = state.Head{}
	q := &f.server.sequencer
	if err := q.Room(f.ctx); err != nil {
		return err
	}
	err := q.Followed(h, wire, spans)
	f.news = true
	f.wire, f.spans = f.wire[:0], f.spans[:0]
	if cap(f.wire) > keepPartial {
		f.wire, f.spans = nil, nil
	}
	return err
}

const (
	// maxPartial bounds a batch that arrives in parts, in bytes: one update with the
	// largest value, or many small ones.
	maxPartial = maxMaxValueSize + 16<<20
	// keepPartial is the largest buffer for such batches that is kept.
	keepPartial = 1 << 20
)

// install replaces the server's map by one that was received.
func (s *Server) install(ctx context.Context, b *base) error {
	s.sequencer.Surrender()
	s.reportDivergence(&b.baseHead)
	if err := s.sequencer.Install(ctx, b.Copy); err != nil {
		return err
	}
	s.restored = 0
	s.pair.copied.Store(true)
	s.log.Info("copied the active server's map", "keys", b.State.Store.Len(), "sequence", b.State.Last())
	return nil
}

// reportDivergence reports the updates that are in this server's map and not in the one
// that replaces it. If the maps have different identities, or the reign is one that the
// active server has forgotten or never knew, their common updates are unknown; then all
// keys are reported. A report is not repeated when a copy fails and begins again.
func (s *Server) reportDivergence(h *baseHead) {
	var after int64
	var newest state.Reign
	s.sequencer.Between(func(now *order.Moment) {
		if newest = now.State.Terms.Newest; h.mapID == now.State.ID {
			after = state.Common(now.State.Terms.History(), h.reigns)
		}
	})
	if newest.Last <= after || after == 0 && s.Len() == 0 {
		return
	}
	if told := &s.pair.diverged; told.newest == newest && told.after <= after {
		return
	}
	s.pair.diverged = divergence{newest, after}
	s.diverged(newest, after)
}

// divergence identifies the last reported updates: those of one history after a
// sequence.
type divergence struct {
	newest state.Reign
	after  int64
}

// diverged reports the updates after a sequence.
func (s *Server) diverged(newest state.Reign, after int64) {
	c := s.sequencer.Cut()
	defer c.Release()
	lost := Divergence{Epoch: state.TermOf(newest.ID), After: after, Last: newest.Last, Entries: func(yield func(Entry) bool) {
		c.Records(func(r kvmsg.Record) bool {
			if r.Seq() <= after {
				return true
			}
			return yield(entryOf(r, c.Deadlines))
		})
	}}
	s.log.Warn("discarded updates that only this server has", "epoch", lost.Epoch, "after", lost.After, "last", lost.Last)
	if s.opts.Pair.OnDiverged != nil {
		s.opts.Pair.OnDiverged(lost)
	}
}
