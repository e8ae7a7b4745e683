package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/subtree"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/closed"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// CompactedError is chp.CompactedError.
type CompactedError struct{ Since, Oldest int64 }

// ErrCompacted is chp.ErrCompacted.
var ErrCompacted = errors.New("chp: the server does not know what came after the sequence")

func (e *CompactedError) Error() string {
	return fmt.Sprintf("%v %d; the oldest one after which it knows everything is %d", ErrCompacted, e.Since, e.Oldest)
}

// Unwrap returns ErrCompacted.
func (e *CompactedError) Unwrap() error { return ErrCompacted }

// Past is what the server has published after a sequence, up to a moment after Past was called: on
// a connection of its own, which the reader may leave waiting. One goroutine at a time may use it.
//
// It ends where the updates of the replica go on, in the same map: the session in which the server
// was asked still follows it when the replica has come to the end. If the client has another server
// by then, or another session, that is asked for the rest.
type Past struct {
	f     *Follower
	specs []string
	anew  func()
	after int64 // of the last update that was returned
	last  int64 // of the last update that has come

	ctx    context.Context
	cancel context.CancelCauseFunc
	dealer *sockets.Dealer
	batch  hooks.Batch
	begun  bool
	asked  *session // that follows the server which was asked

	// Updates to return, never a part of a transaction, and what comes behind them.
	wire    []byte
	spans   []buf.Span
	partial partial
	end     *wire.End
	joined  bool // the replica has come to the end
}

// Past asks the server that is followed for the updates of some subtrees after a sequence. It
// returns when the answer has begun. Before each question it calls anew, from which on the caller
// must have all updates that the replica gets, and may forget those before: the answer has them. The
// error is a *[CompactedError] if the server does not know it, and ErrNoSync if it cannot be asked.
func (f *Follower) Past(ctx context.Context, specs []string, after int64, anew func()) (*Past, error) {
	if len(specs) == 0 {
		specs = f.opts.Subtrees.List
	}
	p := &Past{f: f, specs: subtree.New(specs).List, after: after, anew: anew}
	if err := p.begin(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// After returns the sequence of the last update that Next has returned, or of the end.
func (p *Past) After() int64 { return p.after }

// begin connects, and asks again and again until an answer begins. After an error it is
// disconnected.
func (p *Past) begin(ctx context.Context) error {
	for {
		if err := p.f.WaitActive(ctx); err != nil {
			return err
		}
		err := p.ask(ctx)
		if err == nil {
			return nil
		}
		p.disconnect()
		_, compacted := errors.AsType[*CompactedError](err)
		if _, denied := errors.AsType[*kvmsg.AccessError](err); compacted || denied || errors.Is(err, ErrNoSync) {
			return err
		}
		if !p.pause(ctx, err) {
			return ctx.Err()
		}
	}
}

// pause waits before the server is asked again. It returns false if the context has ended.
func (p *Past) pause(ctx context.Context, err error) bool {
	if p.f.ctx.Err() == nil {
		p.f.opts.Log.Debug("asks again what came after a sequence", "sequence", p.after, "error", err)
	}
	return wake.Pause(ctx, backOffFirst)
}

// ask connects and asks once.
func (p *Past) ask(ctx context.Context) error {
	asked, able := p.f.followed()
	request, ok := wire.SinceRequest([ledger.MapIDSize]byte{}, p.after, p.specs)
	switch {
	case !able || !ok:
		return ErrNoSync
	case asked == nil:
		return ErrDisconnected
	}
	p.asked, p.last = asked, p.after
	p.anew()
	p.ctx, p.cancel = context.WithCancelCause(p.f.ctx)
	opened := make(chan *sockets.Peer, 1)
	in := &intake{command: kvmsg.KindKTHXBAI, tag: kthxbaiTag, wanted: &p.f.opts.Subtrees, heard: new(atomic.Uint32), silent: new(atomic.Bool), refused: p.f.opts.Refused}
	if p.f.opts.Subtrees.All() {
		in.wanted = nil
	}
	limit := p.f.opts.SyncTimeout
	o := sockets.Options{
		Security: p.f.opts.Security(), Dial: p.f.opts.Dial, Metadata: wire.Properties(),
		ConnectTimeout: limit, HandshakeTimeout: limit, HeartbeatInterval: max(limit/4, 1), HeartbeatTimeout: max(limit, 1),
		RecvHWM: sockets.Unlimited, RecvHWMBytes: snapshotAhead, MaxMessageSize: p.f.opts.MaxMessage,
		ReconnectInterval: sockets.ReconnectNever, Linger: sockets.LingerNone,
	}
	fail := p.cancel
	o.Monitor = func(e sockets.Event) {
		switch e.Kind {
		case sockets.EventHandshakeSucceeded:
			opened <- e.Peer // it connects once
		case sockets.EventConnectFailed, sockets.EventHandshakeFailed:
			fail(fmt.Errorf("%w: %w", ErrUnreachable, e.Err))
		case sockets.EventDisconnected:
			fail(fmt.Errorf("%w: %w", ErrDisconnected, e.Err))
		}
	}
	var err error
	if p.dealer, err = sockets.NewDealer(o); err != nil {
		return err
	}
	hooks.Prepare(p.dealer, func(b *hooks.Batch) {
		for i := range b.Len() {
			if d, ok := wire.ParseDenial(b.Message(i)); ok {
				fail(&d.Why)
				b.SetSpans(nil)
				return
			}
		}
		in.prepare(b)
	})
	hooks.Scan(p.dealer, wire.ScanUpdate)
	if err := p.dealer.Connect(asked.server.Snapshot); err != nil {
		return err
	}
	select {
	case peer := <-opened:
		if first := asked.first.Load(); first != nil && wire.InstanceOf(peer) != wire.InstanceOf(first) {
			return ErrUnreachable // another server of the same name
		}
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := p.dealer.Send(ctx, request...); err != nil {
		return err
	}
	return p.receive(ctx)
}

// receive waits for the next batch, of which the last one has been returned. If that is the first
// one, and only says that there is none, it returns an error.
func (p *Past) receive(ctx context.Context) error {
	both, stop := either(ctx, p.ctx)
	defer stop()
	if err := p.dealer.RecvBatch(both, (*sockets.Batch)(&p.batch)); err != nil {
		return cmp.Or(ctx.Err(), context.Cause(p.ctx), err)
	}
	first := !p.begun
	p.begun = true
	bytes, spans := p.batch.Wire(), p.batch.Spans()
	known := int64(math.MinInt64) // up to which everything has come
	if i := slices.IndexFunc(spans, func(s buf.Span) bool { return endsSnapshot(bytes, s) }); i >= 0 {
		end := wire.ParseEnd(kvmsg.Record(bytes[spans[i].Start:spans[i].End]))
		if first && i == 0 && end.Compacted {
			return &CompactedError{p.after, end.Oldest}
		}
		p.end, known, spans = &end, end.Sequence, spans[:i]
	}
	for _, span := range spans {
		seq := kvmsg.Record(bytes[span.Start:]).Seq()
		if seq <= p.last {
			return fmt.Errorf("%w: update %d comes after %d", ErrNotCHP, seq, p.last)
		}
		p.last = seq
	}
	if p.end != nil && p.end.Sequence < p.last {
		return fmt.Errorf("%w: the end %d comes after update %d", ErrNotCHP, p.end.Sequence, p.last)
	}
	p.wire, p.spans = p.partial.whole(bytes, spans, known)
	if len(p.partial.wire) > maxPartial {
		return fmt.Errorf("%w: a transaction of more than %d bytes", ErrNotCHP, maxPartial)
	}
	return nil
}

// Next returns the next update, which is valid until the next call, or nil at the end. If the
// connection breaks, the server, or the next one, is asked again. The error is that of a context,
// of a closed client, or a *[CompactedError] of a server that is asked again.
func (p *Past) Next(ctx context.Context) (kvmsg.Record, error) {
	for {
		var err error
		switch {
		case len(p.spans) > 0:
			span := p.spans[0]
			p.spans = p.spans[1:]
			m := kvmsg.Record(p.wire[span.Start:span.End])
			p.after = m.Seq()
			return m, nil
		case p.joined:
			return nil, nil
		case p.dealer == nil:
			if err := p.begin(ctx); err != nil {
				return nil, err
			}
		case p.end != nil:
			err = p.join(ctx)
		default:
			err = p.receive(ctx)
		}
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case p.f.ctx.Err() != nil:
			return nil, closed.CHP
		default:
			p.disconnect()
			if !p.pause(ctx, err) {
				return nil, ctx.Err()
			}
		}
	}
}

// join waits until the replica has come to the end.
func (p *Past) join(ctx context.Context) error {
	p.after = min(p.end.Last, p.end.Sequence) // see state.State.Place
	if err := p.f.Sync(ctx, 0); err != nil {
		return err
	}
	if p.joined = p.f.current.Load() == p.asked; !p.joined {
		return ErrDisconnected // and what was said may not be in the map of the next server
	}
	return nil
}

// Ready reports whether Next need not wait. While it does not, no transaction was returned in part.
func (p *Past) Ready() bool { return len(p.spans) > 0 || p.joined }

// disconnect ends the connection.
func (p *Past) disconnect() {
	if p.cancel != nil {
		p.cancel(nil)
	}
	if p.dealer != nil {
		_ = p.dealer.Close() // closing a socket does not fail
		p.dealer = nil
	}
	p.batch.Release()
	p.batch, p.begun = hooks.Batch{}, false
	p.wire, p.spans, p.partial, p.end, p.asked = nil, nil, partial{}, nil, nil
}

// Close ends the connection.
func (p *Past) Close() { p.disconnect() }

// either returns a context that ends with one of two.
func either(a, b context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(a)
	stop := context.AfterFunc(b, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// followed returns the session that is ACTIVE, or nil, and whether its server can be asked what came
// after a sequence.
func (f *Follower) followed() (s *session, able bool) {
	y := &f.syncs
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.session, y.able || y.session == nil
}
