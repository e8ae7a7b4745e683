package sockets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	"clustermap/internal/engine"
	"clustermap/internal/option"
	"clustermap/internal/queue"
	"clustermap/internal/text"
	"clustermap/zmtp"
)

// Values of [Options.Linger], and the time that the default means.
const (
	// LingerForever, as the value of [Options.Linger], makes Close wait until
	// all messages are written, however long that takes. It is the default of
	// libzmq.
	LingerForever = time.Duration(math.MaxInt64)

	// LingerNone, as the value of [Options.Linger], makes Close drop queued
	// messages instead of waiting until they are written. It is libzmq's 0.
	LingerNone = time.Duration(math.MinInt64)
)

// Values of [Options] fields that are not a number or a time. No other negative
// value is valid, so that a value of libzmq never has another meaning here.
const (
	// Unlimited, as the value of a high-water mark or another limit of Options,
	// means that there is no limit. In libzmq it is 0 for high-water marks, and
	// -1 for ZMQ_MAXMSGSIZE.
	Unlimited = -1

	// NoWait, as the value of [Options.SendTimeout] or [Options.RecvTimeout],
	// makes calls return ErrTimeout instead of waiting. In libzmq it is 0.
	NoWait = time.Duration(math.MinInt64)

	// ReconnectNever, as the value of [Options.ReconnectInterval], makes a
	// socket not reconnect. It is -1, as in libzmq.
	ReconnectNever = time.Duration(-1)

	// BusyPollOff, as the value of [Options.BusyPoll], makes receive calls sleep
	// at once.
	BusyPollOff = time.Duration(-1)

	// KeepAliveSystem, as the value of [Options.KeepAliveIdle],
	// [Options.KeepAliveInterval] or [Options.KeepAliveCount], leaves that
	// setting to the operating system. It is -1, as in libzmq.
	KeepAliveSystem = -1
)

// Policy specifies what a PUB or XPUB does when the send queue of a subscriber
// is full; see [Options.FullPolicy].
type Policy uint8

const (
	// PolicyDrop drops the message for that subscriber and counts it in
	// [PeerStats].Drops. This is the default, and the default of libzmq.
	PolicyDrop Policy = iota
	// PolicyBlock makes send calls wait until the queue has room. It corresponds to
	// ZMQ_XPUB_NODROP.
	PolicyBlock
	// PolicyDisconnect closes the connection to that subscriber. The subscriber
	// notices that it has missed messages, reconnects and can start over.
	PolicyDisconnect
)

// String returns "drop", "block" or "disconnect".
func (p Policy) String() string {
	return text.Of(p, "Policy", "drop", "block", "disconnect")
}

// MarshalText returns the text of String.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Options configures a socket. The zero value is ready to use, and the zero
// value of each field selects its default. A field that is set and does not
// apply to the socket type is refused, and so is a negative value that is not
// one of the named constants; docs/OPTIONS.md lists the types for each field,
// and the equivalents of libzmq's values. The constructor copies the Options, so later
// changes of the struct have no effect on the socket. The method SetOptions of a socket
// changes most of them later.
type Options struct {
	// Identity is the routing ID by which a ROUTER peer addresses this socket
	// (ZMQ_ROUTING_ID). It has at most 255 bytes and must not begin with a zero
	// byte. By default it is empty, and a ROUTER peer generates an identity for
	// the connection.
	Identity []byte

	// SendHWM and RecvHWM are the high-water marks: the maximum number of
	// messages queued for sending to, or received from, each peer. If zero,
	// they are DefaultHWM; if Unlimited, the number of messages is not limited.
	//
	// SendHWM does not count messages that the socket has already begun to
	// write: up to nine times as many in 256 KiB, if they are small and the
	// application sends them without a pause. RecvHWM may be exceeded by the
	// messages of one read if the socket has a single peer.
	SendHWM, RecvHWM int

	// SendHWMBytes and RecvHWMBytes are the high-water marks in bytes, for each
	// peer. If zero, they are DefaultHWMBytes; if Unlimited, the number of bytes
	// is not limited.
	//
	// A queue that is below its limit accepts one whole message or batch, even
	// if it exceeds the limit by that. RecvHWMBytes counts the memory that
	// received messages occupy: slightly more than their size if each read from
	// the connection brings many bytes, and up to about three times their size
	// if each brings only a few messages. It also
	// limits the total memory of queued messages from peers that have
	// disconnected for good: above it, messages from new peers wait until the
	// application has received some of the old ones.
	SendHWMBytes, RecvHWMBytes int

	// SendTotalBytes limits the bytes that a socket queues for all its peers together. If
	// zero, it is DefaultSendTotal, or for a PUSH or DEALER SendHWMBytes if that is more;
	// if Unlimited, there is no limit, except 1 GiB on 32-bit systems.
	//
	// While the queues of a PUB or XPUB exceed the limit, the socket removes the longest
	// queue: with PolicyDrop it drops the messages in it, and with PolicyDisconnect it
	// closes the connection. Bytes that are being written count, too: with PolicyDrop, a
	// peer that holds most of all by these alone, because it stopped reading or because one
	// message is larger than the limit, is disconnected (ErrSlowPeer). With PolicyBlock the option has no effect.
	//
	// Peers with the same subscriptions share a queue, which counts once.
	// Messages shared by peers with different subscriptions count for each of
	// them. The queues may exceed the limit by one sixteenth before the socket notices.
	//
	// A ROUTER, REP or STREAM, and a SUB or XSUB with its subscriptions, disconnects the
	// peer with the longest queue (ErrSlowPeer).
	//
	// A PUSH or DEALER loses no message: at the limit a send call waits. From half of it
	// on, a peer whose queue is longer than an equal share of the other half gets no more,
	// so that peers that do not read leave room for those that do.
	SendTotalBytes int

	// RecvTotalBytes limits the bytes that are queued from all peers together, counted
	// as for RecvHWMBytes. If zero, it is DefaultRecvTotal, or RecvHWMBytes if that is
	// more; if Unlimited, there is no limit.
	//
	// At the limit, the socket stops reading. As the application receives messages, it
	// continues with one read of a connection at a time: clients take turns, and so do the
	// connections of one client. A client is who has the same key, user or address; see
	// docs/LIMITS.md. So the queues may exceed the limit by the messages of one read.
	RecvTotalBytes int

	// SendBuffer and RecvBuffer set the sizes, in bytes, of the operating
	// system's buffers for each connection (SO_SNDBUF and SO_RCVBUF). If zero,
	// the operating system chooses the size; on Linux, however, the send buffer
	// of a TCP connection within one machine grows to 512 KiB at most, if
	// net.core.wmem_max allows that size to be set.
	SendBuffer, RecvBuffer int

	// Linger is how long Close waits for queued messages to be written, and how
	// long after Disconnect they are still written. Messages that are not
	// written by then are dropped.
	//
	// If zero, Close waits for each peer as long as it takes messages: it gives
	// up a peer, connected or not, that has taken nothing for LingerPatience,
	// and all peers after DefaultLinger. A SUB or XSUB does not wait.
	//
	// A positive Linger applies to all peers, whether or not they take
	// messages. LingerNone means not to wait at all. LingerForever sets no limit, like libzmq's default: Close then waits forever if a peer never
	// takes its messages. CloseContext can end the wait earlier.
	Linger time.Duration

	// ReconnectInterval is the time to wait before connecting again after a
	// connection attempt has failed or a connection was lost. If zero, it is
	// DefaultReconnectInterval; if ReconnectNever, the socket does not reconnect.
	//
	// ReconnectIntervalMax enables exponential back-off: the wait doubles with
	// each failed attempt up to this maximum, which must not be less than
	// ReconnectInterval. If zero, the wait does not grow; each wait is
	// ReconnectInterval plus a random time less than ReconnectInterval.
	//
	// ReconnectIntervalMax is also the wait after a peer has violated the
	// protocol or refused this socket, for example because of wrong
	// credentials; see Connect. If zero, that wait is random, between half of
	// DefaultReconnectIntervalMax and all of it.
	ReconnectInterval, ReconnectIntervalMax time.Duration

	// ReconnectStop selects conditions under which the socket gives up an
	// endpoint instead of connecting to it again. By default it never gives up.
	ReconnectStop ReconnectStop

	// ConnectTimeout limits each attempt to connect, including name resolution,
	// all addresses of a name, and the exchange with a SOCKS proxy. The next
	// attempt resolves the name again, so this is also how soon a peer is found
	// that has moved to another address and left nobody at the old one. If zero,
	// it is DefaultConnectTimeout. The operating system may have a shorter limit.
	ConnectTimeout time.Duration

	// Backlog is the maximum length of the operating system's queue of
	// connections that a bound endpoint has not accepted yet. If zero, it is
	// the system's maximum. Windows ignores it.
	Backlog int

	// IPv6 makes the wildcard in tcp://*:port stand for all IPv6 and IPv4
	// addresses instead of all IPv4 addresses. Other IPv6 addresses, and names
	// that resolve to them, can be used in any case.
	IPv6 bool

	// TOS is the type-of-service byte of outgoing TCP packets, from 0 to 255:
	// six bits of DSCP and two of ECN. If zero, the operating system chooses.
	TOS int

	// KeepAlive specifies whether TCP probes idle connections. The first probe
	// is sent when a connection has been idle for KeepAliveIdle, the next ones
	// every KeepAliveInterval; the connection is closed when KeepAliveCount
	// probes in a row remain unanswered. The times are rounded up to seconds.
	// If zero, they are 15 s, 15 s and 9 probes; KeepAliveSystem leaves the
	// setting to the operating system.
	KeepAlive                        KeepAlive
	KeepAliveIdle, KeepAliveInterval time.Duration
	KeepAliveCount                   int

	// Dial, if not nil, makes the connections of tcp and ipc endpoints instead of
	// package net. It is called like net.Dialer.DialContext: network is "tcp" or
	// "unix", address is host:port or the path, with an initial @ for an abstract
	// name. It must return when its context ends, which is at the latest after
	// ConnectTimeout and when the socket is closed. With SOCKSProxy it connects
	// to the proxy. An endpoint of Connect must not have a source address then.
	//
	// Listen, if not nil, makes the listeners of tcp and ipc endpoints instead of
	// package net. It is called like net.ListenConfig.Listen, with the context of
	// Bind: network is "tcp", "tcp4" or "unix", and a wildcard port is 0. It may
	// ignore network and address and return a listener that exists already, for
	// example one that was inherited from a service manager (ZMQ_USE_FD in
	// libzmq). The socket owns the listener and closes it, which must end its
	// Accept. The actual endpoint (LastEndpoint) has the address of the listener
	// if that is a *net.TCPAddr; otherwise it is the text given to Bind.
	//
	// Close waits for these functions, so they must not close the socket.
	//
	// Such connections and listeners can carry TLS, stay within the process, or
	// come from elsewhere. A connection must support deadlines, also for a Read or
	// Write in progress, and concurrent calls of Read and Write. If it has a method
	// CloseWrite, Close uses it to tell the peer that nothing more follows. Only a
	// *net.TCPConn or *net.UnixConn is read and written by its descriptor; all
	// others by their methods, which costs a copy of the received bytes and excludes
	// BusyPoll. BindToDevice and KeepAlive do not apply to connections and listeners that
	// these functions make, and TOS only to a *net.TCPConn.
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	Listen func(ctx context.Context, network, address string) (net.Listener, error)

	// BindToDevice restricts TCP connections to the named network interface
	// (SO_BINDTODEVICE). It is available on Linux only and may require
	// privileges.
	BindToDevice string

	// SOCKSProxy is the host:port of a SOCKS 5 proxy (RFC 1928) through which
	// the socket connects to tcp endpoints. The proxy resolves their names.
	// SOCKSUser and SOCKSPassword, of at most 255 bytes each, are the
	// credentials if the proxy asks for them (RFC 1929). Formatting Options
	// with package fmt does not show SOCKSPassword.
	SOCKSProxy, SOCKSUser, SOCKSPassword string

	// Security selects the security mechanism and which peers are accepted. By
	// default it is NULL, which accepts every peer.
	Security Security

	// Inproc is the namespace of this socket's inproc endpoints. If nil, it is
	// the namespace shared by the whole process.
	Inproc *Inproc

	// HeartbeatInterval is the time between the PINGs that are sent on every
	// connection, regardless of other traffic. If zero, no PINGs are sent.
	//
	// HeartbeatTimeout is how long after a PING the socket waits to receive
	// anything from the peer before it closes the connection with
	// ErrHeartbeatTimeout. If zero, it is HeartbeatInterval. Time during which
	// the socket did not read, because the application did not receive, does
	// not count. On Linux, neither does time during which the peer's system takes
	// what the socket sent before the PING, as on a slow link.
	// A libzmq peer that stops reading, because its own application
	// does not receive (ZMQ_RCVHWM), answers no PING either: it is disconnected.
	//
	// HeartbeatTTL is sent with each PING and asks the peer to close the
	// connection if it receives nothing for that long after the PING. It is
	// sent in tenths of a second, rounded down, and may be up to 6553.5 s. If
	// zero, the peer is not asked.
	HeartbeatInterval, HeartbeatTimeout, HeartbeatTTL time.Duration

	// HandshakeTimeout limits the greeting and handshake of a new connection,
	// and the preceding exchange with a SOCKS proxy. If zero, it is
	// DefaultHandshakeTimeout.
	HandshakeTimeout time.Duration

	// MinVersion is the lowest major version of ZMTP that a peer may speak: 1,
	// 2 or 3. If zero, it is 1, as in libzmq. It is always 3 with PLAIN, CURVE,
	// Security.ZAPDomain or Security.Authenticate, because older versions
	// cannot authenticate a peer. With 3 the socket sends its greeting in one
	// piece, which saves two round trips when it connects to a peer that does
	// the same.
	MinVersion int

	// MaxHandshakes limits the accepted connections that have not completed
	// their handshake, and the number of concurrent calls of an Authenticator.
	// If zero, it is DefaultMaxHandshakes. It is never more than an eighth of the
	// descriptors that the process may have (RLIMIT_NOFILE).
	//
	// At the limit, a new connection replaces the one that has been waiting
	// longest for its peer's next step, if that is more than a quarter of a
	// second; so silent peers cannot keep others out. Connections that are
	// waiting for the Authenticator are not replaced. If no connection can be
	// replaced, new ones wait in the operating system's queue; see Backlog.
	MaxHandshakes int

	// MaxConnections limits the accepted connections of the socket, including
	// those in their handshake. If zero or Unlimited, only the operating
	// system's limit on open files applies (RLIMIT_NOFILE): of that, 64
	// descriptors, or a quarter if that is less, are left to the process's files
	// and its own connections, whatever the other descriptors are used for. A
	// socket with fewer than four connections may use half of these.
	//
	// At the limit, a new connection replaces a silent handshake, as with
	// MaxHandshakes. If there is none, the new connection is closed at once,
	// and the socket reports EventAcceptFailed with ErrTooManyConnections to the
	// monitor.
	MaxConnections int

	// Operator, if set, reserves four places beyond MaxConnections, and in the
	// descriptors that are left to files, for operators: the peers on this
	// machine, by ipc or from an address of its own, and with CURVE those on
	// other machines for which it returns true. It is called with a peer that has
	// completed its handshake and finds no other place, with no locks held. When
	// all four places are taken, an operator replaces the one who has been there
	// longest, after a second. Others are closed as at MaxConnections, but with
	// CURVE only after their handshake.
	Operator func(*Peer) bool

	// MaxMessageSize is the maximum size of a message in bytes on the wire, for
	// sending and receiving. A peer that exceeds it is disconnected. If zero,
	// it is DefaultMaxMessageSize. The largest possible value is 1 MiB less
	// than 4 GiB, or 512 MiB on 32-bit systems; Unlimited or a larger
	// value stands for that. Socket types that do not receive messages accept less: a
	// PUB 1 MiB, for subscriptions, and a PUSH 64 KiB.
	MaxMessageSize int64

	// MaxIncompleteBytes limits the memory that partially received messages
	// occupy, over all connections of the socket. If zero, it is
	// DefaultMaxIncompleteBytes; if Unlimited, there is no limit.
	//
	// What counts is the buffer of each connection that has received more than 4 KiB of a
	// message and waits for the rest. At the limit, the
	// socket stops reading from a connection whose message needs more memory
	// until other connections have released some. Only the message that began
	// first continues, up to MaxMessageSize, and does not count. The connections of one
	// client (the same key, user or address) may use seven eighths of the limit. If a peer
	// stops or nearly stops sending in the middle of its message while others wait, it is
	// disconnected with ErrStalled, if there are several, one of the client that uses most.
	// Beyond that, a connection occupies up to 8 KiB while it waits for its peer, with CURVE
	// 16 KiB, and up to 1 MiB while its bytes are decoded or wait for the queue.
	MaxIncompleteBytes int

	// MaxSubscriptions limits the number of distinct topics that one peer may
	// subscribe to. If zero, it is DefaultMaxSubscriptions. All topics of a
	// peer together may have 16 MiB. A peer that exceeds either limit is
	// disconnected with ErrTooManySubscriptions.
	MaxSubscriptions int

	// MaxSubscriptionBytes limits the memory that the subscriptions of all peers of the
	// socket occupy together. If zero, it is DefaultMaxSubscriptionBytes; if Unlimited,
	// there is no limit. A topic of n bytes counts as 3n + 512 bytes, which is at least
	// what it occupies, for each peer that subscribes to it.
	//
	// At the limit, a subscription disconnects the peer that has most, of the client that
	// has most, with ErrTooManySubscriptions. A client is who has the same key, user or
	// address, as for RecvTotalBytes. Subscriptions that the application makes with
	// XPub.Subscribe count, and are not refused.
	MaxSubscriptionBytes int

	// MaxTopicSize limits the size of a topic, in bytes, that a peer may subscribe
	// to. A peer that exceeds it is disconnected with ErrTooLarge. If zero or
	// Unlimited, only MaxMessageSize limits it.
	MaxTopicSize int

	// Metadata holds application-defined properties that are sent to every peer
	// in the handshake; see [Peer.Property]. Names consist of "X-" and 1 to 253
	// letters, digits, or the characters -_.+, and all names and values
	// together have at most 8 KiB.
	Metadata map[string]string

	// Mandatory makes a ROUTER return ErrUnroutable for a message that it
	// cannot route, and wait if the peer's queue is full, instead of dropping
	// the message (ZMQ_ROUTER_MANDATORY).
	Mandatory bool

	// FullPolicy specifies what a PUB or XPUB does with a subscriber whose
	// queue is full. By default it is PolicyDrop.
	FullPolicy Policy

	// WaitSubscriber makes send calls of a PUB or XPUB wait while no peer is
	// subscribed to the message's topic, instead of dropping the message. It
	// does not apply to SendWire and SendSpans.
	WaitSubscriber bool

	// SendTimeout and RecvTimeout limit how long a call waits to send or to
	// receive, in addition to the call's context. When the time has passed, the
	// call returns ErrTimeout. If zero, only the context limits the wait; if
	// NoWait, calls return ErrTimeout instead of waiting.
	SendTimeout, RecvTimeout time.Duration

	// BusyPoll is how long a receive call polls the connection for bytes before
	// it sleeps. It applies on Linux, while the socket has one peer and more
	// than one processor is available, and the socket polls less often where
	// polling does not help, and not at all while messages come many at a time.
	// If zero, it is DefaultBusyPoll. If BusyPollOff, calls do not poll, which
	// saves processor time but makes short round trips longer.
	BusyPoll time.Duration

	// Immediate makes a DEALER, PUSH, REQ or PAIR queue messages only for peers
	// with an established connection. By default a socket also queues messages
	// for endpoints that it is still connecting to. With Immediate, messages
	// that are queued for a peer are lost when it disconnects.
	Immediate bool

	// Conflate makes a PUSH, PULL, PUB, SUB or DEALER keep only the most recent
	// message in each queue to and from a peer. The high-water marks then have
	// no effect. Unlike in libzmq, messages may have several frames.
	Conflate bool

	// Handover makes a ROUTER transfer an identity to the peer that announced
	// it most recently, and disconnect the previous peer with ErrHandedOver
	// (ZMQ_ROUTER_HANDOVER). By default the new peer waits until the previous
	// one has disconnected; see ErrIdentityInUse.
	Handover bool

	// Notify makes a ROUTER or STREAM receive an empty message, after the peer's
	// identity, when a peer connects, disconnects, or both (ZMQ_ROUTER_NOTIFY,
	// ZMQ_STREAM_NOTIFY). The default, 0, is neither for a ROUTER, and both for a
	// STREAM, where NotifyNone turns them off. The order is that of
	// DisconnectMessage.
	Notify Notify

	// ProbeRouter makes a ROUTER, DEALER or REQ send an empty message as the
	// first message on each new connection, so that a ROUTER peer learns its
	// identity. Peers of other types may not expect that message.
	ProbeRouter bool

	// ReqRelaxed allows a REQ to send a new request before it has received the
	// reply to the previous one, which it then abandons.
	//
	// ReqCorrelate makes a REQ send a request ID before each request and accept
	// only the reply with that ID; every REP returns it, because it is part of
	// the envelope (RFC 28). Use both options together: without ReqCorrelate, a
	// late reply to an abandoned request is taken for the reply to the next
	// one.
	ReqRelaxed, ReqCorrelate bool

	// XPubVerbose makes an XPUB receive every subscription, even if another
	// peer already has the same topic. XPubVerboser makes it receive every
	// unsubscription as well.
	XPubVerbose, XPubVerboser bool

	// XPubManual makes an XPUB receive all subscriptions and unsubscriptions
	// without applying them; the application applies subscriptions with
	// XPub.Subscribe. XPubManualLastValue implies XPubManual and makes the
	// socket send the next message only to the peer whose subscription was
	// received last. That message can be the last value of the topic.
	XPubManual, XPubManualLastValue bool

	// WelcomeMessage is a message of one frame that a PUB or XPUB sends first
	// to each new subscriber. A SUB receives it only if it has a matching
	// subscription. If empty, no message is sent.
	WelcomeMessage []byte

	// HelloMessage is a message of one frame that a DEALER or ROUTER sends
	// first on each new connection. If empty, no message is sent.
	HelloMessage []byte

	// DisconnectMessage is a message of one frame, after the peer's identity,
	// that a ROUTER receives when an accepted connection has ended, after all
	// messages of that connection. If the client comes back with the same
	// identity, messages of its new connection may be received before; their
	// [Peer] differs, see RecvFrom. HiccupMessage is a message of one frame that a
	// DEALER receives when a connection that it made with Connect is lost. If
	// empty, no message is received.
	DisconnectMessage, HiccupMessage []byte

	// OnlyFirstSubscribe makes an XSUB, PUB or XPUB look for subscriptions in a
	// message of several frames only if the first frame is one. By default
	// every frame that begins with byte 0 or 1 is a subscription or
	// unsubscription.
	OnlyFirstSubscribe bool

	// InvertMatching makes a PUB or XPUB send each message to the peers whose
	// subscriptions do not match, and makes a SUB receive the messages that its
	// subscriptions do not match. Both sides must set it.
	InvertMatching bool

	// XSubVerboseUnsubscribe makes an XSUB send every unsubscription. By
	// default it sends only the last one for each topic.
	XSubVerboseUnsubscribe bool

	// Monitor, if not nil, is called with each event of the socket and its
	// connections. Calls come from the goroutines that serve the connections,
	// several at a time. Monitor must return promptly and must not close the
	// socket. The events of one connection arrive in order, and EventMonitorStopped
	// is the last event of all. To receive events from a channel, use
	// [MonitorChan].
	Monitor func(Event)
}

// Format implements [fmt.Formatter]. It formats o like any struct but hides
// SOCKSPassword.
func (o Options) Format(f fmt.State, verb rune) {
	type shown Options // without this method
	if o.SOCKSPassword != "" {
		o.SOCKSPassword = "(hidden)"
	}
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), shown(o))
}

// OptionError describes one invalid field of [Options]. A constructor reports
// all invalid fields at once, joined by [errors.Join].
// The packages of this module share the type; its field Package names the one.
type OptionError = option.Error

// withDefaults validates o and returns a copy with all defaults filled in, in
// which "no limit" is a very large number. It reports all invalid fields at
// once.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, option.New("sockets", field, format, args...))
	}
	errs = append(errs, checkIdentity("Identity", o.Identity, 0))
	if o.Notify > notifyBoth && o.Notify != NotifyNone {
		bad("Notify", "%#x is neither NotifyNone nor a combination of NotifyConnect and NotifyDisconnect", uint8(o.Notify))
	}
	o.Identity = slices.Clone(o.Identity)
	o.Metadata = maps.Clone(o.Metadata)
	for _, m := range []*[]byte{&o.WelcomeMessage, &o.HelloMessage, &o.DisconnectMessage, &o.HiccupMessage} {
		*m = slices.Clone(*m)
	}
	o.XPubManual = o.XPubManual || o.XPubManualLastValue
	o.XPubVerbose = o.XPubVerbose || o.XPubVerboser
	bytes := 0
	for _, p := range o.metadata() {
		one := zmtp.HandshakeConfig{Metadata: zmtp.Metadata{p}}
		if !strings.HasPrefix(p.Name, "X-") || one.Validate() != nil {
			bad("Metadata", "name %q must consist of X- and 1 to 253 letters, digits or characters of -_.+", p.Name)
		}
		bytes += len(p.Name) + len(p.Value)
	}
	if bytes > maxMetadata {
		bad("Metadata", "has %d bytes; the maximum is %d", bytes, maxMetadata)
	}
	if o.FullPolicy > PolicyDisconnect {
		bad("FullPolicy", "%v is not PolicyDrop, PolicyBlock or PolicyDisconnect", o.FullPolicy)
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"SendBuffer", int64(o.SendBuffer)}, {"RecvBuffer", int64(o.RecvBuffer)}, {"Backlog", int64(o.Backlog)},
		{"MaxHandshakes", int64(o.MaxHandshakes)}, {"MaxSubscriptions", int64(o.MaxSubscriptions)},
		{"HandshakeTimeout", int64(o.HandshakeTimeout)}, {"ConnectTimeout", int64(o.ConnectTimeout)},
		{"ReconnectIntervalMax", int64(o.ReconnectIntervalMax)},
		{"HeartbeatInterval", int64(o.HeartbeatInterval)}, {"HeartbeatTimeout", int64(o.HeartbeatTimeout)},
	} {
		if f.value < 0 {
			bad(f.name, "must not be negative")
		}
	}
	for _, f := range []struct {
		name    string
		value   int64
		allowed int64 // the only negative value
		hint    string
	}{
		{"SendHWM", int64(o.SendHWM), Unlimited, "Unlimited means no limit"},
		{"RecvHWM", int64(o.RecvHWM), Unlimited, "Unlimited means no limit"},
		{"SendHWMBytes", int64(o.SendHWMBytes), Unlimited, "Unlimited means no limit"},
		{"RecvHWMBytes", int64(o.RecvHWMBytes), Unlimited, "Unlimited means no limit"},
		{"SendTotalBytes", int64(o.SendTotalBytes), Unlimited, "Unlimited means no limit"},
		{"RecvTotalBytes", int64(o.RecvTotalBytes), Unlimited, "Unlimited means no limit"},
		{"MaxSubscriptionBytes", int64(o.MaxSubscriptionBytes), Unlimited, "Unlimited means no limit"},
		{"MaxConnections", int64(o.MaxConnections), Unlimited, "Unlimited means no limit"},
		{"MaxTopicSize", int64(o.MaxTopicSize), Unlimited, "Unlimited means no limit"},
		{"MaxMessageSize", o.MaxMessageSize, Unlimited, "Unlimited means no limit"},
		{"MaxIncompleteBytes", int64(o.MaxIncompleteBytes), Unlimited, "Unlimited means no limit"},
		{"Linger", int64(o.Linger), int64(LingerNone), "LingerNone means not to wait, and LingerForever no limit, as -1 in libzmq"},
		{"SendTimeout", int64(o.SendTimeout), int64(NoWait), "NoWait means not to wait, and 0 no limit, as -1 in libzmq"},
		{"RecvTimeout", int64(o.RecvTimeout), int64(NoWait), "NoWait means not to wait, and 0 no limit, as -1 in libzmq"},
		{"ReconnectInterval", int64(o.ReconnectInterval), int64(ReconnectNever), "ReconnectNever means not to reconnect"},
		{"BusyPoll", int64(o.BusyPoll), int64(BusyPollOff), "BusyPollOff means not to poll"},
		{"KeepAliveIdle", int64(o.KeepAliveIdle), KeepAliveSystem, "KeepAliveSystem leaves it to the system"},
		{"KeepAliveInterval", int64(o.KeepAliveInterval), KeepAliveSystem, "KeepAliveSystem leaves it to the system"},
		{"KeepAliveCount", int64(o.KeepAliveCount), KeepAliveSystem, "KeepAliveSystem leaves it to the system"},
	} {
		if f.value < 0 && f.value != f.allowed {
			bad(f.name, "is negative: %s", f.hint)
		}
	}
	if o.HeartbeatTTL < 0 || o.HeartbeatTTL > maxHeartbeatTTL {
		bad("HeartbeatTTL", "%v is not between 0 and %v", o.HeartbeatTTL, maxHeartbeatTTL)
	}
	if o.MinVersion < 0 || o.MinVersion > zmtp.Major {
		bad("MinVersion", "%d is not 1, 2 or 3", o.MinVersion)
	}

	o.checkTransport(bad)
	o.checkSecurity(bad)

	bound(&o.SendHWM, DefaultHWM)
	bound(&o.RecvHWM, DefaultHWM)
	bound(&o.SendHWMBytes, DefaultHWMBytes)
	bound(&o.RecvHWMBytes, DefaultHWMBytes)
	bound(&o.SendTotalBytes, DefaultSendTotal)
	bound(&o.RecvTotalBytes, max(DefaultRecvTotal, o.RecvHWMBytes))
	bound(&o.MaxMessageSize, DefaultMaxMessageSize)
	o.MaxMessageSize = min(o.MaxMessageSize, engine.MaxMessage)
	bound(&o.MaxHandshakes, DefaultMaxHandshakes)
	bound(&o.MaxConnections, unbounded)
	bound(&o.MaxIncompleteBytes, DefaultMaxIncompleteBytes)
	bound(&o.MaxSubscriptions, DefaultMaxSubscriptions)
	bound(&o.MaxSubscriptionBytes, DefaultMaxSubscriptionBytes)
	bound(&o.MaxTopicSize, unbounded)
	o.Inproc = cmp.Or(o.Inproc, &process)
	o.MinVersion = cmp.Or(o.MinVersion, 1)
	o.HeartbeatTimeout = cmp.Or(o.HeartbeatTimeout, o.HeartbeatInterval)
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, DefaultHandshakeTimeout)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, DefaultConnectTimeout)
	o.BusyPoll = cmp.Or(o.BusyPoll, DefaultBusyPoll)
	o.ReconnectInterval = cmp.Or(o.ReconnectInterval, DefaultReconnectInterval)
	if o.ReconnectIntervalMax > 0 && o.ReconnectIntervalMax < o.ReconnectInterval {
		bad("ReconnectIntervalMax", "is less than ReconnectInterval, which is %v", o.ReconnectInterval)
	}
	return o, errors.Join(errs...)
}

// bound replaces zero by the default and Unlimited by unbounded.
func bound[T int | int64](v *T, standard T) {
	switch {
	case *v == 0:
		*v = standard
	case *v < 0:
		*v = unbounded
	}
}

func (o *Options) metadata() zmtp.Metadata { return properties(o.Metadata) }

// properties returns properties by their names, in order.
func properties(values map[string]string) (m zmtp.Metadata) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		m = append(m, zmtp.Property{Name: name, Value: []byte(values[name])})
	}
	return m
}

// unbounded stands for "no limit" in counts and sizes.
const unbounded = queue.Unbounded
