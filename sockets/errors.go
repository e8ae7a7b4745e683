package sockets

import (
	"errors"
	"fmt"

	"clustermap/internal/bounds"
	"clustermap/internal/engine"
	"clustermap/internal/fanout"
	"clustermap/internal/ipcpath"
	"clustermap/internal/link"
	"clustermap/internal/queue"
)

// Errors returned by sockets or reported to the monitor, often wrapped. Compare
// them with [errors.Is].
var (
	// ErrClosed is returned by the methods of a closed socket, and by calls in
	// progress when it is closed. It matches net.ErrClosed (errors.Is).
	ErrClosed = queue.ErrClosed

	// ErrUnroutable is returned by Router.Send, with Options.Mandatory, if no
	// peer has the given identity, and by methods for a given Peer if that has
	// disconnected. A later call may succeed when the peer has reconnected.
	// XPub.Subscribe and XPub.Unsubscribe return it if there is no peer whose
	// subscriptions they could change.
	ErrUnroutable = fanout.ErrUnroutable

	// ErrForeignPeer is returned by a method for a given Peer if the Peer is
	// nil or belongs to another socket. It wraps ErrUnroutable, but a later
	// call will not succeed.
	ErrForeignPeer = fmt.Errorf("sockets: peer belongs to another socket: %w", ErrUnroutable)

	// ErrTimeout is returned by a call that has waited for Options.SendTimeout
	// or Options.RecvTimeout. It wraps os.ErrDeadlineExceeded, whose Timeout
	// method returns true.
	ErrTimeout = queue.ErrTimeout

	// ErrWouldBlock is returned by methods that do not wait, such as TrySend
	// and TryRecv, if they would have to wait. Nothing was sent or received.
	ErrWouldBlock = queue.ErrWouldBlock

	// ErrState is returned by Req and Rep if Send and Recv do not alternate.
	ErrState = errors.New("sockets: send and receive must alternate")

	// ErrPaired is the reason for which a Pair disconnects a peer: it already
	// has one.
	ErrPaired = errors.New("sockets: already paired with another peer")

	// ErrNoFrames is returned if a message to send has no frames.
	ErrNoFrames = errors.New("sockets: a message needs at least one frame")

	// ErrTooLarge is returned if a message to send is larger than
	// Options.MaxMessageSize, or a topic larger than 32 KiB. It is also the reason for
	// which a publisher disconnects a peer that exceeds Options.MaxTopicSize.
	ErrTooLarge = errors.New("sockets: message or topic too large")

	// ErrServerKey is reported with EventHandshakeFailed by a CURVE client whose
	// server closes the connection in answer to HELLO, as servers do that cannot
	// read it: Security.CurveServerKey is most likely not the key of this server. A client that
	// knows other keys tries these first, and reports it with EventConnectRetried until then.
	ErrServerKey = engine.ErrServerKey

	// ErrSlowPeer is the reason for which a publisher with
	// PolicyDisconnect disconnects a subscriber that does not take its messages, or a
	// SUB or XSUB a publisher that does not take its subscriptions.
	ErrSlowPeer = queue.ErrSlowPeer

	// ErrIdentityInUse is reported with EventPeerIgnored if a peer of a ROUTER
	// announces the identity of a connected peer. Messages from the new peer
	// wait until the other connection has ended and the new one is admitted
	// (EventPeerAdmitted). If that takes longer than Options.HandshakeTimeout, the
	// new peer is disconnected with this error and may try again, except over
	// inproc, where it keeps waiting. libzmq ignores such a peer forever,
	// unless ROUTER_HANDOVER is set.
	//
	// Router.ConnectAs returns it if the identity is in use.
	ErrIdentityInUse = engine.ErrIdentityInUse

	// ErrHandedOver is the reason for which a ROUTER with Options.Handover
	// disconnects a peer: another peer has announced the same identity. If the
	// ROUTER made the connection with Connect, it does not connect again.
	ErrHandedOver = engine.ErrHandedOver

	// ErrHandshakeTimeout is reported with EventHandshakeFailed if a peer does not
	// complete its handshake within Options.HandshakeTimeout, or if a new
	// connection replaces it because it is silent; see Options.MaxHandshakes
	// and Options.MaxConnections.
	ErrHandshakeTimeout = bounds.ErrHandshakeTimeout

	// ErrTooManyConnections is reported with EventAcceptFailed if a connection is
	// closed because there are already Options.MaxConnections. If it is closed because
	// the process has few descriptors left, the error also matches syscall.EMFILE.
	ErrTooManyConnections = bounds.ErrTooManyConnections

	// ErrStalled is the reason for which a peer is disconnected that has
	// stopped, or nearly stopped, sending in the middle of a message
	// while other connections needed the memory; see
	// Options.MaxIncompleteBytes.
	ErrStalled = bounds.ErrStalled

	// ErrHeartbeatTimeout is the reason for which a peer is disconnected that
	// has not answered a PING in time (Options.HeartbeatTimeout), or that has
	// sent a PING with a TTL and nothing more within that time.
	ErrHeartbeatTimeout = engine.ErrHeartbeatTimeout

	// ErrTooManySubscriptions is the reason for which a publisher disconnects a
	// peer that exceeds Options.MaxSubscriptions, or that has most subscriptions when
	// those of all peers reach Options.MaxSubscriptionBytes.
	ErrTooManySubscriptions = fanout.ErrTooManySubscriptions

	// ErrNotManual is returned by XPub.Subscribe, XPub.Unsubscribe,
	// SubscribePeer and UnsubscribePeer without Options.XPubManual.
	ErrNotManual = fanout.ErrNotManual

	// ErrNotBound is returned by Unbind, and ErrNotConnected by Disconnect, if
	// the endpoint is not in use.
	ErrNotBound     = engine.ErrNotBound
	ErrNotConnected = engine.ErrNotConnected
)

// MaxIPCPath is the maximum size of the path of an ipc endpoint in bytes: 107 on Linux.
const MaxIPCPath = ipcpath.Max

// EndpointError describes an invalid endpoint. A later call with the same
// endpoint fails as well.
//
// Its fields are Endpoint, the text given to Bind or Connect; Reason, why it is
// invalid; and Err, the corresponding system error, such as
// syscall.ENAMETOOLONG, or nil.
type EndpointError = link.EndpointError

// ProxyError reports that a SOCKS 5 proxy could not be reached, did not behave as
// one, or refused to connect. It is wrapped in Event.Err of the EventConnectFailed
// event.
//
// Its fields are Proxy, the host:port in Options.SOCKSProxy; Reason; and Err: a
// network error, syscall.ECONNREFUSED if the proxy reports that its connection
// was refused, or nil.
type ProxyError = link.ProxyError

// PeerError is the reason for which one connection has ended, such as malformed
// data, a failed handshake or a timeout. It is reported to the monitor in
// Event.Err. Other connections are not affected.
//
// Its fields are Remote, the network address of the peer; and Err, a *zmtp.ProtocolError, an error
// of this package, or a network error.
type PeerError = engine.PeerError
