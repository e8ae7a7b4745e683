package follow

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/submit"
	"clustermap/chp/internal/wire"
	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// uplink sends a session's updates. It is a PUB socket that is connected to the
// server's collector. It belongs to the session and ends with it; queued updates are
// then dropped.
//
// If the server is of another implementation, the other servers also get the updates
// for which they have room, as the guide's pairs of Clone servers expect: the passive
// one keeps updates that its peer has not published yet. Each has its own PUB socket, so
// updates wait only for the server that the client follows. A pair of servers of this
// package replicates its map itself, so the other servers get neither updates nor a
// connection.
//
// A client that only reads has no uplink. The first update creates it, and later
// sessions begin with one.
type uplink struct {
	of      *connections
	ctx     context.Context    // bounds the waits of the writer
	give    context.CancelFunc // ends ctx
	pub     wire.Uplink
	others  []wire.Uplink // see mirror
	leaving atomic.Bool   // the client closes: a broken connection is no fault
	opened  chan struct{} // closed when the collector's connection is established
	known   atomic.Bool   // the collector has subscribed
	asking  []byte        // scratch of Send
}

// Open opens the uplink of a session that is ACTIVE.
func (s *session) Open() (submit.Uplink, error) {
	if err := s.openUplink(); err != nil {
		return nil, err
	}
	if err := s.uplink.mirror(s.ours); err != nil {
		s.uplink.close()
		s.uplink = nil
		return nil, err
	}
	return s.uplink, nil
}

// Fail ends the session with an error.
func (s *session) Fail(err error) { s.fail(err) }

// Over returns a channel that is closed when the session has ended.
func (s *session) Over() <-chan struct{} { return s.over }

// writerUplink returns the uplink for the writer, or nil.
func (s *session) writerUplink() submit.Uplink {
	if s.uplink == nil {
		return nil
	}
	return s.uplink
}

// openUplink creates the uplink and starts to connect it to the session's server.
func (c *connections) openUplink() error {
	u := &uplink{of: c, opened: make(chan struct{})}
	u.ctx, u.give = context.WithCancel(c.ctx)
	o := u.options()
	o.ReconnectInterval = sockets.ReconnectNever
	o.Monitor = u.monitor
	if first := c.first.Load(); first != nil {
		wire.Follow(o.Metadata, wire.InstanceOf(first))
	}
	var err error
	if u.pub, err = c.dialect.NewUplink(o); err == nil {
		err = u.pub.Connect(c.server.Collector)
	}
	if err != nil {
		u.close()
		return err
	}
	c.uplink = u
	return nil
}

// mirror starts to connect the uplink to the other servers. It does nothing if the server,
// which must be known, is ours, of this package, or of a Clone model without pairs.
func (u *uplink) mirror(ours bool) error {
	opts := u.of.opts
	if ours || !opts.Dialect.Full {
		return nil
	}
	for _, server := range opts.Servers {
		if server == u.of.server {
			continue
		}
		o := u.options()
		o.Dial = opts.Dial // another server is at another address
		o.ReconnectIntervalMax = max(backOffMost, sockets.DefaultReconnectInterval)
		o.Monitor = func(e sockets.Event) {
			if e.Kind == sockets.EventHandshakeFailed {
				opts.Log.Debug("collector of another server refused", "collector", e.Endpoint, "error", e.Err)
			}
		}
		p, err := u.of.dialect.NewUplink(o)
		if err != nil {
			return err
		}
		u.others = append(u.others, p)
		if err := p.Connect(server.Collector); err != nil {
			return err
		}
	}
	return nil
}

func (u *uplink) options() sockets.Options {
	o := u.of.socketOptions()
	o.SendHWM, o.SendHWMBytes = sockets.Unlimited, u.of.opts.SendQueue
	o.Linger = closeLinger
	return o
}

func (u *uplink) monitor(e sockets.Event) {
	missing := e.Kind == sockets.EventConnectFailed && !u.of.opts.Dialect.Collector
	if missing || e.Kind == sockets.EventHandshakeFailed && e.Failure() != sockets.FailureNoDetail {
		// The other two connections show whether the whole server does not accept
		// this client, or only the collector.
		u.of.opened(opening{collector: true, err: e.Err})
		return
	}
	established := e.Kind == sockets.EventHandshakeSucceeded
	if established || !u.leaving.Load() {
		u.of.watch(e, true)
	}
	if established {
		close(u.opened) // it connects once
	}
}

// Ready waits until the collector has subscribed: updates sent before that are lost.
// Updates sent after the connection has broken are lost too. The PUB socket knows of
// that before the session does; then Ready returns an error.
func (u *uplink) Ready() error {
	if u.known.Load() {
		if u.pub.WaitSubscribers(wake.Ended, "", 1) != nil {
			return ErrDisconnected
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(u.ctx, u.of.opts.SyncTimeout)
	defer cancel()
	select {
	case <-u.opened:
	case <-ctx.Done():
	}
	err := u.pub.WaitSubscribers(ctx, "", 1)
	switch {
	case u.ctx.Err() != nil: // also if the collector is another server's and has subscribed
		return u.ctx.Err()
	case err != nil || ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrUnreachable, errNoSubscription)
	}
	u.known.Store(true)
	return nil
}

// Known reports whether Ready need not wait.
func (u *uplink) Known() bool { return u.known.Load() }

// Send queues updates, which lie in chunk, and behind them with ask a question. It can wait
// for room for the collector; the other servers get them only if they have room.
func (u *uplink) Send(wait bool, bytes []byte, messages int, chunk *buf.Chunk, ask bool) error {
	ctx := u.ctx
	if !wait {
		ctx = wake.Ended
		hooks.Alone(u.pub)
	}
	var owner hooks.Owner = chunk
	// A question that cannot wait for room is queued together with the updates, or neither is.
	if len(bytes) < submit.Lent || !wait && ask {
		owner = nil // the socket copies them
		if ask {
			all := append(append(u.asking[:0], bytes...), ledger.Question...)
			if len(bytes) < submit.Lent {
				u.asking = all
			}
			bytes, messages, ask = all, messages+1, false
		}
	}
	if err := u.pub.SendWire(ctx, bytes, messages, owner); err != nil {
		return err
	}
	if ask {
		_ = u.pub.SendWire(ctx, ledger.Question, 1, nil) // fails only when the session ends
	}
	for _, p := range u.others {
		_ = p.SendWire(wake.Ended, bytes, messages, owner) // as far as it has room
	}
	return nil
}

// Request queues requests for the server that the client follows.
func (u *uplink) Request(wait bool, wire []byte, messages int) error {
	ctx := u.ctx
	if !wait {
		ctx = wake.Ended
		hooks.Alone(u.pub)
	}
	return u.pub.SendWire(ctx, wire, messages, nil)
}

// GiveUp ends the waits of Ready, Request and Send.
func (u *uplink) GiveUp() { u.give() }

// Leave waits for done, for closeLinger at most, and closes the sockets when everything
// queued is written, or after closeLinger.
func (u *uplink) Leave(done <-chan struct{}) {
	u.leaving.Store(true)
	timer := time.AfterFunc(closeLinger, u.give)
	defer timer.Stop()
	<-done
	u.each(func(p wire.Uplink) { _ = p.Close() }) // closing a socket does not fail
}

// close closes the sockets and drops the queued updates.
func (u *uplink) close() {
	u.give()
	u.each(func(p wire.Uplink) { _ = p.CloseContext(wake.Ended) })
}

func (u *uplink) each(end func(wire.Uplink)) {
	var closing sync.WaitGroup
	if u.pub != nil {
		closing.Go(func() { end(u.pub) })
	}
	for _, p := range u.others {
		closing.Go(func() { end(p) })
	}
	closing.Wait()
}
