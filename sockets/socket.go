package sockets

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"clustermap/internal/engine"
	"clustermap/zmtp"
)

// socket is what all socket types have in common: it holds an engine, and the options.
type socket struct {
	core engine.Socket

	mu      sync.Mutex              // held by SetOptions
	changed func(now *Options)      // by a socket type, which makes options take effect; may be nil
	taken   func(by *engine.Peer)   // by a socket type, called for each message that the application receives, or batch; may be nil
	given   atomic.Pointer[Options] // by the application: without defaults; changes under mu
	current atomic.Pointer[Options] // in effect; the Options that it points to do not change
}

// init initializes a socket. Its pattern must be complete.
func (s *socket) init(kind zmtp.SocketType, opts Options, p *engine.Pattern) error {
	o, err := opts.inEffect(kind)
	if err != nil {
		return err
	}
	given := opts.clone()
	s.given.Store(&given)
	s.current.Store(&o)
	s.core.Init(kind, s.config(kind, &o), p)
	if s.changed != nil {
		s.changed(&o)
	}
	return nil
}

// made returns a new socket, or nil if it could not be initialized.
func made[S any](s *S, err error) (*S, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// opts returns the options in effect, which must not be changed. Code that reads
// several of them for one decision calls it once.
func (s *socket) opts() *Options { return s.current.Load() }

func (s *socket) engine() *engine.Socket { return &s.core }

// owns reports whether a peer belongs to this socket, connected or not.
func (s *socket) owns(peer *Peer) bool { return (*engine.Peer)(peer).BelongsTo(&s.core) }

// check returns an error if the frames cannot be sent as a message, or the
// socket is closed.
func (s *socket) check(frames [][]byte) error {
	if len(frames) == 0 {
		return ErrNoFrames
	}
	var size int64
	for _, f := range frames {
		size += int64(zmtp.FrameSize(len(f)))
	}
	if size > s.core.MaxMessage() {
		return ErrTooLarge
	}
	return s.core.Open()
}

// checkEach returns an error if a message of the batch cannot be sent.
func (s *socket) checkEach(bodies [][]byte) error {
	most := s.core.MaxMessage()
	for _, b := range bodies {
		if int64(zmtp.FrameSize(len(b))) > most {
			return ErrTooLarge
		}
	}
	return s.core.Open()
}

// Bind listens for connections on an endpoint:
//
//   - tcp://host:port. The host is an IP address, a name, the name of a network
//     interface, or * for all interfaces. The port is a number, or * or 0 to
//     let the operating system choose one.
//   - ipc://path, a Unix domain socket. Bind creates the file, and Unbind and
//     Close remove it. Bind replaces a socket file that no process listens on
//     any more; if any other file exists at path, the address is in use. On
//     Linux, ipc://@name is a name in the abstract namespace. With ipc://*,
//     Bind creates a file in a new temporary directory.
//   - inproc://name, for sockets in the same process; see [Inproc]. Sockets
//     that have already called Connect with this name are connected when Bind
//     returns.
//
// LastEndpoint returns the actual endpoint if the address contains a wildcard.
// The context applies to name resolution.
//
// The error is an [*EndpointError] if the address is malformed, and otherwise
// that of package net. If the address is in use, the error matches
// syscall.EADDRINUSE. Bind fails at once and does not retry.
func (s *socket) Bind(ctx context.Context, address string) error { return s.core.Bind(ctx, address) }

// Unbind stops listening on an endpoint and closes the connections accepted on
// it, without regard to [Options.Linger]. Connections over inproc stay open.
// The address must be the actual endpoint, as LastEndpoint returned it after
// Bind. Unbind returns ErrNotBound if the socket is not bound to it.
func (s *socket) Unbind(address string) error { return s.core.Unbind(address) }

// Connect connects to an endpoint and keeps it connected. It returns
// immediately; the socket makes the connection in the background and makes it
// again if it is lost. The endpoint is one of:
//
//   - tcp://host:port. The socket resolves a name again for each attempt. If it
//     has several addresses, an attempt tries them all, as in RFC 8305: one is
//     begun when the one before has failed or has not answered for 250 ms, and
//     those that have failed lately come last. With
//     tcp://source;host:port it connects from the given local address, where
//     source is an IP address or network interface and a port, and each of the
//     two may be *.
//   - ipc://path, a Unix domain socket, or on Linux ipc://@name, a name in the
//     abstract namespace.
//   - inproc://name, a socket in the same process; see [Inproc]. If the name is
//     bound, the sockets are connected when Connect returns.
//
// As in libzmq, connecting a second time to the same tcp or ipc endpoint has no
// effect for a REQ, DEALER, PUB or SUB. In all other cases it makes another
// connection.
//
// If the peer violates the protocol, refuses this socket or has an incompatible
// socket type, the socket waits for [Options.ReconnectIntervalMax], reports
// EventConnectRetried with the error to the monitor, and connects again; libzmq
// gives up, which ReconnectStopOnProtocolError selects here. The socket gives up an
// endpoint only under the conditions of [Options.ReconnectStop], after the
// first failure if Options.ReconnectInterval is negative, or if a ROUTER with
// [Options.Handover] has transferred its identity to another peer. It then
// reports EventAbandoned, and Connect can be called again. Over inproc it gives the
// endpoint up when the connection ends. Endpoints tells how the attempts go.
//
// The error is an [*EndpointError] if the address is malformed.
func (s *socket) Connect(address string) error { return s.core.Connect(address, nil) }

// Disconnect closes the connection to an endpoint and stops connecting to it.
// The address must be the text given to Connect. If Connect was called several
// times with it, Disconnect closes all these connections. It returns
// ErrNotConnected if there is none.
//
// Messages that are already queued for the endpoint are still written in the
// background, within [Options.Linger], and Close waits for that. As in libzmq,
// messages that were received from the endpoint but not yet by the application
// are dropped, and so are those that arrive later.
//
// A connection over inproc has ended on both sides when Disconnect returns.
func (s *socket) Disconnect(address string) error { return s.core.Disconnect(address) }

// LastEndpoint returns the endpoint most recently bound or connected. For a
// bound endpoint it contains the actual address and port, such as
// "tcp://127.0.0.1:5555"; for a connected one it is the text given to Connect.
// It is empty if there is none.
func (s *socket) LastEndpoint() string { return s.core.LastEndpoint() }

// WaitPeers waits until at least n peers are connected and have completed their
// handshake, or until the context is done. Peers that the socket ignores do not
// count; see EventPeerIgnored. A peer may disconnect again before the caller acts on
// the result.
//
// If the context is done first, the error is the context's. It also wraps why the last
// attempt to reach each endpoint of Connect has failed, for those that are not connected;
// see Endpoints.
//
// A connected subscriber has not necessarily subscribed: a publisher waits with
// WaitSubscribers, and a subscriber with WaitSubscribed.
func (s *socket) WaitPeers(ctx context.Context, n int) error {
	return s.unreached(s.core.WaitPeers(ctx, n))
}

// unreached adds to the error of a wait for peers why the last attempt to reach each
// endpoint of Connect has failed.
func (s *socket) unreached(err error) error {
	if err == nil || err == ErrClosed {
		return err
	}
	separator := ": "
	for _, e := range s.Endpoints() {
		if e.Err != nil {
			err = fmt.Errorf("%w%s%s: %w", err, separator, e.Endpoint, e.Err)
			separator = "; "
		}
	}
	return err
}

// Reads returns a number that changes when anything arrives on one of the present
// connections, be it messages, commands such as PONG, or a new connection itself. It is
// not a count of anything.
func (s *socket) Reads() uint64 { return s.core.Reads() }

// Ping sends a PING on every present connection whose peer understands it and whose queue
// is not full. It does not wait. A peer that can be reached answers, which Reads shows.
func (s *socket) Ping() { s.core.Ping() }

// CloseContext closes the socket like Close but stops waiting when the context
// is done: it then drops the messages that are still queued and returns the
// context's error. This also ends the wait of a Close that is already in
// progress. With [LingerForever] only the context limits the wait. Otherwise
// [Options.Linger] may end the wait earlier, in which case CloseContext returns
// nil.
func (s *socket) CloseContext(ctx context.Context) error { return s.core.CloseContext(ctx) }

// Close closes the socket. It stops listening, waits until the queued messages
// are written, closes all connections, and returns when all goroutines of the
// socket have ended. Calls in progress on the socket return ErrClosed.
//
// [Options.Linger] limits the wait for queued messages. By default Close waits
// for each peer until it has taken its messages or has taken nothing for one
// second, and for at most 30 seconds. Messages that are not written by then are
// dropped. CloseContext limits the wait by a context.
//
// Close always returns nil. Further calls wait until the first one returns.
func (s *socket) Close() error {
	s.core.Close()
	return nil
}
