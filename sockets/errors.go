package sockets

import (
	"errors"
	"fmt"

	"clustermap/internal/queue"
)

// Conditions. Compare with errors.Is.
var (
	// ErrClosed is returned by every method of a socket that was closed, also
	// by calls that were waiting at that moment. It Is net.ErrClosed.
	ErrClosed = queue.ErrClosed

	// ErrUnroutable is returned by Router when no peer has the identity that
	// the message names (with Options.Mandatory), or when the given peer has
	// disconnected. Trying again helps once the peer is back. XPub.Subscribe
	// returns it when there is no peer to subscribe.
	ErrUnroutable = errors.New("sockets: no such peer")

	// ErrForeignPeer is returned when a call is given a nil Peer or one of
	// another socket. A socket's peers come from its own batches, messages and
	// events. It Is ErrUnroutable, but trying again does not help.
	ErrForeignPeer = fmt.Errorf("sockets: peer belongs to another socket: %w", ErrUnroutable)

	// ErrTimeout is returned by calls that waited for Options.SendTimeout or
	// Options.RecvTimeout in vain. It Is os.ErrDeadlineExceeded, and a
	// net.Error whose Timeout is true.
	ErrTimeout = queue.ErrTimeout

	// ErrWouldBlock is returned by calls that do not wait (TrySend, TryRecv)
	// when they would have to: nothing was sent or received.
	ErrWouldBlock = queue.ErrWouldBlock

	// ErrState is returned by Req and Rep for a call out of turn: see there.
	ErrState = errors.New("sockets: request and reply must alternate")

	// ErrPaired is why a Pair ended a connection: it has its peer already.
	ErrPaired = errors.New("sockets: paired with another peer")

	// ErrNoFrames is returned for a message without a frame, which ZMTP
	// cannot express.
	ErrNoFrames = errors.New("sockets: a message needs at least one frame")

	// ErrTooLarge is returned for a message beyond Options.MaxMessageSize, and
	// for a topic beyond 32 KiB.
	ErrTooLarge = errors.New("sockets: message is larger than MaxMessageSize")

	// ErrSlowPeer is why a publisher with FullPolicy Disconnect ended a
	// connection: the peer did not take what was queued for it. A Sub does the
	// same when a publisher takes no subscriptions.
	ErrSlowPeer = errors.New("sockets: peer fell behind its queue")

	// ErrIdentityInUse is reported to the monitor when a second peer comes
	// with the identity of a connected one. What the newcomer sends waits until
	// the other connection has ended and the newcomer is let in (PeerAdmitted).
	// If that takes longer than Options.HandshakeTimeout, the newcomer is
	// disconnected with this error, except over inproc, and can try again.
	// libzmq, without ROUTER_HANDOVER, ignores it forever.
	ErrIdentityInUse = errors.New("sockets: identity is in use by another peer")

	// ErrHandedOver is why a ROUTER with Options.Handover ended a connection:
	// another peer came with its identity. A connection that Connect made is
	// then not made again.
	ErrHandedOver = errors.New("sockets: identity was handed over to another peer")

	// ErrHandshakeTimeout is reported to the monitor when a peer does not
	// finish its greeting and handshake within Options.HandshakeTimeout, or
	// stalled in it and was replaced by a new connection (Options.MaxHandshakes,
	// Options.MaxConnections).
	ErrHandshakeTimeout = errors.New("sockets: handshake not finished in time")

	// ErrTooManyConnections is reported to the monitor when an accepted
	// connection was closed at once because there are Options.MaxConnections.
	ErrTooManyConnections = errors.New("sockets: too many connections")

	// ErrStalled is why a connection ended whose peer had stopped, or nearly
	// stopped, in the middle of a large message while other connections needed
	// the memory (Options.MaxIncompleteBytes).
	ErrStalled = errors.New("sockets: peer stalled in a large message while other connections needed the memory")

	// ErrHeartbeatTimeout is why a connection ended whose peer did not answer a
	// PING (Options.HeartbeatTimeout), or had sent one with a time to live, and
	// nothing more within that time.
	ErrHeartbeatTimeout = errors.New("sockets: peer fell silent for longer than heartbeats allow")

	// ErrTooManySubscriptions is why a publisher ended a connection: see
	// Options.MaxSubscriptions.
	ErrTooManySubscriptions = errors.New("sockets: peer has too many subscriptions")

	// ErrNotManual is returned by XPub.Subscribe and its like without
	// Options.XPubManual.
	ErrNotManual = errors.New("sockets: subscriptions are the peers' own without XPubManual")

	// ErrNotBound and ErrNotConnected are returned by Unbind and Disconnect
	// for an endpoint that is not in use.
	ErrNotBound     = errors.New("sockets: endpoint is not bound")
	ErrNotConnected = errors.New("sockets: endpoint is not connected")
)

// EndpointError says what is wrong with an endpoint such as
// "tcp://127.0.0.1:5555". Trying the same text again does not help.
type EndpointError struct {
	Endpoint string
	Reason   string
	Err      error // the system's word for it, such as syscall.ENAMETOOLONG, or nil
}

func (e *EndpointError) Error() string {
	return fmt.Sprintf("sockets: endpoint %q: %s", e.Endpoint, e.Reason)
}

// Unwrap returns Err.
func (e *EndpointError) Unwrap() error { return e.Err }

// PeerError is a fault of one connection: malformed bytes, a refused
// handshake, a time-out. It goes to the monitor, and ends that connection
// alone.
type PeerError struct {
	Remote string // network address of the peer
	Err    error  // a *zmtp.ProtocolError, one of this package's errors, or the network's
}

func (e *PeerError) Error() string { return fmt.Sprintf("sockets: peer %s: %v", e.Remote, e.Err) }

// Unwrap returns Err.
func (e *PeerError) Unwrap() error { return e.Err }
