package majordomo

import (
	"context"
	"errors"
	"sync/atomic"

	"clustermap/sockets"
)

// connection is one connection to a broker, with its own socket: a worker or a client
// makes a new one when it has ended, since the broker forgets a peer with its connection
// (RFC 7: a worker that was sent DISCONNECT opens a new socket).
type connection struct {
	dealer *sockets.Dealer
	ctx    context.Context // ends with the connection
	cancel context.CancelCauseFunc
	broker atomic.Uint32 // what the handshake has shown
}

// Values of connection.broker.
const (
	brokerUnknown uint32 = iota // no handshake has succeeded yet
	brokerForeign               // of another implementation
	brokerOurs
	brokerWelcomes // ours, which announces propertyWelcome
)

// reach knows why a broker is not reached, over all connections of a worker or a client, which
// clears it when it is.
type reach struct{ why atomic.Pointer[error] }

// errMute is the reason while a broker has accepted a connection only.
var errMute = errors.New("somebody accepts connections there, and is silent")

// watch makes the sockets with these options report to r.
func (r *reach) watch(o *sockets.Options) {
	monitor := o.Monitor
	o.Monitor = func(e sockets.Event) {
		switch e.Kind {
		case sockets.EventConnected:
			r.why.CompareAndSwap(nil, &errMute)
		case sockets.EventConnectFailed, sockets.EventHandshakeFailed:
			err := e.Err
			if peer, ok := errors.AsType[*sockets.PeerError](err); ok {
				err = peer.Err // the caller knows the endpoint
			}
			if err != nil {
				r.why.Store(&err)
			}
		}
		if monitor != nil {
			monitor(e)
		}
	}
}

// ended returns the error of a call whose context has ended without a connection.
func (r *reach) ended(ctx context.Context, broker string) error {
	e := &NoBrokerError{Broker: broker, Err: context.Cause(ctx)}
	if why := r.why.Load(); why != nil {
		e.Why = *why
	}
	return e
}

// open connects to the broker in the background, until ctx ends. It calls ready when the
// handshake has succeeded. After an error nothing is left.
func (c *connection) open(ctx context.Context, broker string, o sockets.Options, ready func()) (err error) {
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	monitor := o.Monitor
	o.Monitor = func(e sockets.Event) {
		switch e.Kind {
		case sockets.EventHandshakeSucceeded:
			kind := brokerForeign
			if isOurs(e.Peer) {
				kind = brokerOurs
				if _, welcomes := e.Peer.Property(propertyWelcome); welcomes {
					kind = brokerWelcomes
				}
			}
			if !c.broker.CompareAndSwap(brokerUnknown, kind) {
				c.cancel(errLost) // a second connection of this socket
				break
			}
			ready()
		case sockets.EventDisconnected:
			c.cancel(errLost)
		}
		if monitor != nil {
			monitor(e)
		}
	}
	if c.dealer, err = sockets.NewDealer(o); err != nil {
		c.cancel(err)
		return err
	}
	if err = c.dealer.Connect(broker); err != nil {
		c.close(err)
	}
	return err
}

// close ends the connection.
func (c *connection) close(why error) {
	c.cancel(why)
	_ = c.dealer.Close()
}

// made reports whether the handshake has succeeded.
func (c *connection) made() bool { return c.broker.Load() != brokerUnknown }

// ours reports whether the broker is known to be of this package.
func (c *connection) ours() bool { return c.broker.Load() >= brokerOurs }

// welcomes reports whether the broker says that it accepts a worker.
func (c *connection) welcomes() bool { return c.broker.Load() == brokerWelcomes }
