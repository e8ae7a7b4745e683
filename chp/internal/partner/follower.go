package partner

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/order"
	"clustermap/chp/internal/state"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/lograte"
	"clustermap/internal/mutate"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// copier is the passive server's side: it keeps this server's map a copy of the active
// server's. One goroutine at a time uses it.
type copier struct {
	*Options
	prove func(nonce []byte) []byte
	heard func() (run uint64) // of the other server by its last state; 0 if that is not known

	requested atomic.Pointer[string] // at whose request this server has handed over, until the other one knows
	copied    atomic.Bool            // this server has a copy of the active server's map, or is active itself
	restored  bool                   // the map is from a log, and no server has said what is left of times to live
	reported  reported               // the last divergence
}

// follower is one connection to the active server. It applies that one's updates with their
// sequences to the map, the log and the tail of this server. prepare and watch run in
// goroutines of the socket.
type follower struct {
	*copier
	ctx    context.Context
	fail   context.CancelCauseFunc
	dealer *sockets.Dealer

	base    *base      // the map that is being received, or nil
	copying bool       // a copy of the map has begun and is not installed
	follows bool       // this server has the active server's map
	began   func()     // is called when it gets that
	proving bool       // it has sent a proof, and no answer has come
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

// errEnded is why a connection broke that the other server has ended without an error.
var errEnded = errors.New("it was closed")

// errProof is why a connection broke that the active server has ended instead of an answer to
// the proof of who this server is.
var errProof = errors.New("chp: the active server does not accept this server's proof of who it is: both need the same pair secret")

// errFollow ends the connection to an active server that violates the protocol.
var errFollow = errors.New("chp: unexpected message of the active server")

// errOlder ends the connection to an active server that lacks updates of this one, and
// has no others that count more. The state messages, which may arrive later than the map,
// make this server the active one.
var errOlder = errors.New("chp: the active server has an older map than this one")

// errBase ends the connection to an active server whose map is larger than this server
// may hold.
var errBase = errors.New("chp: the active server's map exceeds this server's MaxMapBytes, which both servers of a pair need alike")

// errAnother ends the connection to a server that is not the other one of the pair, although it
// accepts this one. If the other one has just started, its state arrives soon.
var errAnother = errors.New("chp: the server at the other one's address is not the one whose state is heard: both endpoints must be of one server")

// another reports whether the active server in a run is not the one that is heard.
func (c *copier) another(run uint64) bool {
	heard := c.heard()
	return heard != 0 && heard != run && !mutate.CopyAnyMap
}

// outranks reports whether this server's map is not to be replaced by another one.
func (c *copier) outranks(h *baseHead) bool {
	var theirs state.Reigns
	theirs.Set(h.reigns)
	ours, _ := c.Order.Standing()
	return state.Compare(ours, theirs.Accepted()) > 0 && !mutate.CopyAnyMap
}

// follow follows the active server until ctx ends, and reconnects when the connection
// breaks. serving ends with the server.
func (c *copier) follow(ctx, serving context.Context) {
	failures := lograte.Failures()
	wait, since := followAgain, time.Now()
	warned := false // that it does not follow
	for ctx.Err() == nil {
		f := &follower{copier: c}
		f.began = func() {
			level := slog.LevelInfo
			if warned { // who has read of the outage reads that it is over
				level = slog.LevelWarn
			}
			warned = false
			c.Log.Log(ctx, level, "follows the active server", "server", c.Peer)
		}
		err := f.run(ctx, serving)
		if ctx.Err() != nil {
			return
		}
		level := slog.LevelInfo // normally the active server has ended
		if f.follows {
			since = time.Now()
		} else if time.Since(since) > c.Timeout {
			level = slog.LevelWarn
		}
		if due, _ := failures.Due(level.String(), lograte.Cause(err, errProof), time.Now()); due {
			c.Log.Log(ctx, level, "does not follow the active server", "server", c.Peer, "error", err)
			warned = warned || level == slog.LevelWarn
		}
		if !wake.Pause(ctx, wait) {
			return
		}
		wait = min(2*wait, followAgainMost)
		if !f.copying && !errors.Is(err, errAnother) {
			wait = followAgain
		}
	}
}

// begin notes that this server has the active server's map.
func (f *follower) begin() {
	f.requested.Store(nil)
	if !f.follows {
		f.follows = true
		f.began()
	}
}

// run runs one connection to the active server.
func (f *follower) run(ctx, serving context.Context) error {
	f.ctx, f.fail = context.WithCancelCause(ctx)
	defer f.fail(nil)
	properties := wire.Properties()
	Announce(properties)
	if requester := f.requested.Load(); requester != nil {
		properties[propertyRequester] = *requester
	}
	var asks followRequest
	f.Order.Between(func(now *order.Moment) {
		asks = followRequest{now.State.ID, now.Newest.ID, now.Newest.Last}
		if f.restored && now.State.Deadlines.Len() > 0 {
			properties[propertyTimes] = peerVersion
		}
	})
	var err error
	f.dealer, err = sockets.NewDealer(sockets.Options{
		Security: f.PeerSecurity(), Metadata: properties,
		ReconnectInterval: sockets.ReconnectNever, ConnectTimeout: max(f.Timeout, time.Second), HandshakeTimeout: max(f.Timeout, time.Second),
		HeartbeatInterval: max(f.Timeout/2, 10*time.Millisecond), HeartbeatTimeout: max(f.Timeout, 50*time.Millisecond),
		RecvHWM: sockets.Unlimited, RecvHWMBytes: followWindow, Linger: byeTime,
		Monitor: f.watch,
	})
	if err != nil {
		return err
	}
	defer f.dealer.CloseContext(wake.Ended)
	hooks.Prepare(f.dealer, f.prepare)
	hooks.Scan(f.dealer, wire.ScanUpdate)
	if err := f.dealer.Connect(f.Peer); err != nil {
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
		if f.proving {
			err = fmt.Errorf("%w: %w", errProof, err)
		}
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

func (f *follower) watch(e sockets.Event) {
	switch e.Kind {
	case sockets.EventHandshakeSucceeded:
		if err := checkPeerVersion(e.Peer); err != nil {
			f.fail(err)
		}
	case sockets.EventHandshakeFailed, sockets.EventDisconnected, sockets.EventConnectFailed:
		err := e.Err
		if err == nil {
			err = errEnded
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
	if err := f.Order.Journal().Stored(f.ctx); err != nil {
		return err
	}
	var last int64
	f.Order.Between(func(now *order.Moment) { last = now.State.Terms.Newest.Last })
	return f.dealer.Send(f.ctx, []byte(nameHave), binary.BigEndian.AppendUint64(nil, uint64(last)))
}

// restore adds a section to the map that is being copied.
func (f *follower) restore(kind state.Kind, body []byte) error {
	if f.base == nil || f.base.State.Restore(state.Section{Kind: kind, Body: body}, 0) != nil {
		return errFollow
	}
	return nil
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
		run := binary.BigEndian.Uint64(body)
		if f.another(run) {
			return errAnother
		}
		f.Order.Copies(run)
		f.copied.Store(true)
		f.proving = false
		f.news = true
		f.begin()
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
		switch {
		case f.another(h.run):
			return errAnother
		case f.outranks(&h):
			return errOlder
		}
		f.copying, f.proving = true, false
		f.base = &base{h, f.Order.NewCopy(h.run, h.mapID, h.reigns)}
		f.Log.Info("copying the active server's map")
		return nil
	case nameOrigins:
		return f.restore(state.KindClients, body)
	case nameMade:
		return f.restore(state.KindRequests, body)
	case nameHistory:
		return f.restore(state.KindHistory, body)
	case nameDone:
		if f.base == nil {
			return errFollow
		}
		b := f.base
		f.base, f.news = nil, true
		err := f.install(f.ctx, b)
		f.copying = err != nil
		if err == nil {
			f.begin()
		}
		return err
	case nameChallenge:
		if len(body) != nonceSize {
			return errFollow
		}
		f.proving = true
		return f.dealer.Send(f.ctx, []byte(nameProof), f.prove(body))
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
func (f *follower) records(m []byte, spans []buf.Span) error {
	if f.base != nil {
		if !f.base.Records(m, spans) {
			return errBase
		}
		return nil
	}
	if whole := len(f.spans) == 0 && len(spans) == int(f.head.Count); !whole {
		for _, s := range spans {
			start := len(f.wire)
			f.wire = append(f.wire, m[s.Start:s.End]...)
			f.spans = append(f.spans, buf.Span{Start: uint32(start), End: uint32(len(f.wire)), Tag: s.Tag})
		}
		if len(f.wire) > wire.LargestValue+partialRoom {
			return errFollow
		}
		if len(f.spans) < int(f.head.Count) {
			return nil
		}
		m, spans = f.wire, f.spans
	}
	h := f.head
	f.head = state.Head{}
	if err := f.Order.Room(f.ctx); err != nil {
		return err
	}
	err := f.Order.Followed(h, m, spans)
	f.news = true
	f.wire, f.spans = f.wire[:0], f.spans[:0]
	if cap(f.wire) > keepPartial {
		f.wire, f.spans = nil, nil
	}
	return err
}

// install replaces the server's map by one that was received.
func (c *copier) install(ctx context.Context, b *base) error {
	c.Order.Surrender()
	err := c.reportDivergence(&b.baseHead)
	if err == nil {
		err = c.Order.Install(ctx, b.Copy)
	}
	if err != nil {
		return err
	}
	c.restored = false
	c.copied.Store(true)
	c.Log.Info("copied the active server's map", "keys", b.State.Store.Len(), "sequence", b.State.Last())
	return nil
}

// reported identifies the last reported updates: those of one history after a sequence.
type reported struct {
	newest state.Reign
	after  int64
}

// reportDivergence reports the updates that are in this server's map and not in the one
// that replaces it. If the maps have different identities, or the reign is one that the
// active server has forgotten or never knew, their common updates are unknown; then all
// keys are reported. A report is not repeated when a copy fails and begins again, unless the
// report itself has failed; then the map must not be replaced.
func (c *copier) reportDivergence(h *baseHead) error {
	var after int64
	var newest state.Reign
	c.Order.Between(func(now *order.Moment) {
		if newest = now.State.Terms.Newest; h.mapID == now.State.ID {
			after = state.Common(now.State.Terms.History(), h.reigns)
		}
	})
	if newest.Last <= after || after == 0 && c.Order.Live().Now().Store.Len() == 0 {
		return nil
	}
	if c.reported.newest == newest && c.reported.after <= after {
		return nil
	}
	d := Divergence{Epoch: state.TermOf(newest.ID), After: after, Last: newest.Last, Cut: c.Order.Live().Cut()}
	defer d.Cut.Release()
	if err := c.Diverged(d); err != nil {
		return fmt.Errorf("chp: the updates after sequence %d, which only this server has, cannot be kept, and so are not discarded: %w", after, err)
	}
	c.reported = reported{newest, after}
	c.Log.Warn("discarded updates that only this server has", "epoch", d.Epoch, "after", d.After, "last", d.Last)
	return nil
}
