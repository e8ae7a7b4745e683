package follow

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/wire"
	netlink "clustermap/internal/link"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// connections are the sockets of a session, which connect once, and what their handshakes
// say. If one of them breaks, or two reach different servers, the session fails.
type connections struct {
	opts    *Options
	server  Address
	who     wire.Client   // what all of them announce
	dialect *wire.Session // converts messages of other Clone models
	ctx     context.Context
	fail    context.CancelCauseFunc

	sub      *sockets.Sub
	dealer   *sockets.Dealer
	uplink   *uplink                      // nil if the client has not written; created by the writer while ACTIVE
	host     *netlink.Host                // where all connections go; nil with Options.Dial
	first    atomic.Pointer[sockets.Peer] // of the connection that was established first
	openings chan opening                 // one for each socket

	answered atomic.Bool // a handshake has succeeded
	joined   atomic.Bool // the snapshot is complete
	unneeded atomic.Bool // the snapshot connection is no longer needed
}

// opening is the result of connecting a socket.
type opening struct {
	collector bool
	peer      *sockets.Peer
	err       error // the collector does not accept this client
}

// socketOptions returns the options that all sockets of the session have.
func (c *connections) socketOptions() sockets.Options {
	o := sockets.Options{
		Security:         c.opts.Security(),
		ConnectTimeout:   c.opts.SyncTimeout,
		HandshakeTimeout: c.opts.SyncTimeout,
		Dial:             c.opts.Dial,
		Metadata:         c.who.Properties(),
	}
	if c.host != nil {
		o.Dial = c.host.Dial
	}
	if limit := c.opts.HeartbeatTimeout; limit > 0 {
		// Silence is detected within the limit: a PING follows each interval and
		// must be answered in the rest of the limit.
		o.HeartbeatInterval = max(limit/4, time.Millisecond)
		o.HeartbeatTimeout = max(limit-limit/4, time.Millisecond)
	}
	return o
}

// close closes the sockets.
func (c *connections) close() {
	if c.uplink != nil {
		c.uplink.close()
	}
	if c.sub != nil {
		_ = c.sub.Close() // closing a socket does not fail
		_ = c.dealer.Close()
	}
}

// watch handles monitor events. It is called from the goroutines of the sockets.
func (c *connections) watch(e sockets.Event, collector bool) {
	switch e.Kind {
	case sockets.EventHandshakeSucceeded:
		if err := c.recognize(e.Peer); err != nil {
			c.fail(err) // before the other end can be heard, or sent anything
			return
		}
		c.answered.Store(true)
		c.opened(opening{collector: collector, peer: e.Peer})
	case sockets.EventConnectFailed, sockets.EventHandshakeFailed:
		c.fail(fmt.Errorf("%w: %w", ErrUnreachable, e.Err))
	case sockets.EventDisconnected:
		if errors.Is(e.Err, zmtp.ErrTooLarge) {
			c.fail(fmt.Errorf("%w: %w", ErrMapTooLarge, e.Err)) // no key could have that value
		}
		c.fail(fmt.Errorf("%w: %w", ErrDisconnected, e.Err))
	}
}

// recognize returns a *MixedError if a connection has reached another server than the
// first one: there can be several behind one name. Servers that do not say which they are
// cannot be told apart.
func (c *connections) recognize(peer *sockets.Peer) error {
	if c.first.CompareAndSwap(nil, peer) {
		return nil
	}
	if first := c.first.Load(); wire.InstanceOf(first) != wire.InstanceOf(peer) {
		return &MixedError{c.server.Name, first.RemoteAddr(), peer.RemoteAddr()}
	}
	return nil
}

// opened stores the result of connecting a socket. A socket connects once, so there is
// room for all results.
func (c *connections) opened(o opening) {
	if c.joined.Load() && o.err != nil {
		c.fail(&CollectorError{c.server.Name, o.err}) // connect has returned
		return
	}
	c.openings <- o
}
