package sockets

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"clustermap/zmtp"
)

// Defaults of [Options].
const (
	DefaultHWM               = 1000             // messages, as libzmq
	DefaultHWMBytes          = 64 << 20         // bytes of queued messages
	DefaultSendTotal         = 1 << 30          // bytes queued for all peers of a publisher
	DefaultLinger            = 30 * time.Second // the most that Close waits; see Options.Linger
	DefaultReconnectInterval = 100 * time.Millisecond
	DefaultHandshakeTimeout  = 30 * time.Second
	DefaultBusyPoll          = 100 * time.Microsecond
	DefaultMaxHandshakes     = 1024
	DefaultMaxMessageSize    = 256 << 20
	DefaultMaxSubscriptions  = 100_000

	DefaultMaxIncompleteBytes = 256 << 20
)

// Policy says what a publisher does with a subscriber whose queue is full.
type Policy uint8

const (
	// Drop discards the message for that subscriber and counts it. It is
	// ZeroMQ's usual behaviour and the default.
	Drop Policy = iota
	// Block makes Send wait for room (ZMQ_XPUB_NODROP).
	Block
	// Disconnect ends the connection to that subscriber, which thereby learns
	// that it has missed something and can start afresh.
	Disconnect
)

func (p Policy) String() string {
	switch p {
	case Drop:
		return "drop"
	case Block:
		return "block"
	case Disconnect:
		return "disconnect"
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// Options configures a socket. The zero value works; a field that does not
// concern a socket's type is ignored. Options is copied when the socket is
// made.
type Options struct {
	// Identity is the routing id that a ROUTER peer sees: 0 to 255 bytes,
	// the first of them not zero. Default none.
	Identity []byte

	// SendHWM and RecvHWM bound the messages queued for and from each peer.
	// 0 means DefaultHWM; negative means no bound on their number. What the
	// connection's writer has taken to write counts no longer. While a socket
	// has one peer, a receive call may read the connection itself, and queues
	// all that one read brings.
	SendHWM, RecvHWM int

	// SendHWMBytes and RecvHWMBytes bound the bytes queued for and from
	// each peer. A queue below its bound always takes one whole message or
	// batch more. What was received counts with the memory that it holds,
	// which is somewhat more than its bytes. What peers leave that have gone
	// is bounded together, as for one peer: while it is more, what peers send
	// that come anew waits until the application has caught up. 0 means
	// DefaultHWMBytes; negative means no bound.
	SendHWMBytes, RecvHWMBytes int

	// SendTotalBytes bounds the bytes that a PUB or XPUB has queued for all its
	// peers together. When the queues exceed it, the peer with the longest queue
	// is treated as FullPolicy says, then the next one, until they do not: with
	// Drop the peer loses its queue, with Disconnect its connection ends. With
	// Block the option has no effect. Peers with the same topics share a queue,
	// which counts once; messages that peers with different topics share count
	// for each of them. With Drop, bytes that are being written do not count: a
	// peer that stops reading can hold up to SendHWMBytes of these in addition.
	// The queues can exceed the bound by a sixteenth before this is noticed. 0
	// means DefaultSendTotal; negative means no bound, or 1 GiB on 32-bit systems.
	SendTotalBytes int

	// SendBuffer and RecvBuffer are the sizes of the kernel's buffers of a
	// connection in bytes. 0 leaves them to the kernel, but for the one for
	// sending by TCP to a peer on the same machine: on Linux that does not grow
	// beyond 512 KiB then, if the system's limit (net.core.wmem_max) allows to
	// ask for as much.
	SendBuffer, RecvBuffer int

	// Linger is how long Close waits for queued messages to be written, and how
	// long they are still written after Disconnect. The rest is dropped.
	//
	// 0 means that each peer has as long as it goes on taking messages: Close
	// gives up a peer that has taken nothing for LingerPatience, also one that is
	// not connected, and all of them after DefaultLinger. With 0 a SUB or XSUB
	// does not wait. A positive time holds for all peers, whether they take
	// anything or not. LingerForever sets no limit: a message to a peer that never
	// comes then keeps Close waiting, as libzmq's default does. Negative means
	// not to wait at all. CloseContext ends every wait earlier.
	Linger time.Duration

	// ReconnectInterval is the wait before a connection is dialled again.
	// With ReconnectIntervalMax 0 each wait is the interval plus a random part
	// of as much again; otherwise it doubles from attempt to attempt up to
	// the maximum. 0 means DefaultReconnectInterval; negative means that a
	// lost connection stays lost.
	//
	// ReconnectIntervalMax is also the wait after a peer has broken the protocol
	// or refused this socket, as with wrong credentials: see Connect. With 0 that
	// wait is random, from half of DefaultReconnectIntervalMax to all of it.
	ReconnectInterval, ReconnectIntervalMax time.Duration

	// ReconnectStop says when a connection is given up instead. Default never.
	ReconnectStop ReconnectStop

	// ConnectTimeout bounds each attempt to connect, including the looking up
	// of names and the exchange with a proxy. 0 leaves it to the system, and then
	// HandshakeTimeout bounds the exchange with a proxy.
	ConnectTimeout time.Duration

	// Backlog is how many connections the system keeps for Bind's endpoint
	// that were not accepted yet. 0 means the system's maximum. Windows has
	// its own choice.
	Backlog int

	// IPv6 makes the wildcard host of tcp://*:port mean IPv6 and IPv4; without
	// it, it is IPv4 alone. Addresses of IPv6 and names that have them can be
	// used in any case.
	IPv6 bool

	// TOS is the type of service of outgoing TCP packets, 0 to 255: the
	// byte in the header, so six bits of DSCP and two of ECN. 0 leaves it to
	// the system.
	TOS int

	// KeepAlive says whether the system probes idle TCP connections: first
	// after KeepAliveIdle, then every KeepAliveInterval, and after
	// KeepAliveCount probes without an answer the connection ends. The times
	// are rounded up to seconds. 0 means 15 s, 15 s and 9; negative leaves one
	// to the system.
	KeepAlive                        KeepAlive
	KeepAliveIdle, KeepAliveInterval time.Duration
	KeepAliveCount                   int

	// BindToDevice lets TCP connections use the network interface of that
	// name only (SO_BINDTODEVICE; Linux only). It may need a privilege.
	BindToDevice string

	// SOCKSProxy is the host:port of a SOCKS 5 proxy (RFC 1928) by way of which
	// tcp endpoints are connected; their names are resolved there. With a
	// SOCKSUser, of at most 255 bytes as is SOCKSPassword, the proxy may ask
	// for both (RFC 1929). Printing the Options does not show SOCKSPassword.
	SOCKSProxy, SOCKSUser, SOCKSPassword string

	// Security is the security mechanism and who is let in. Default NULL,
	// everyone.
	Security Security

	// Inproc is the namespace of inproc endpoints. Default the process's.
	Inproc *Inproc

	// HeartbeatInterval is how often a PING is sent on every connection,
	// whatever else is sent. 0 means never.
	//
	// A connection ends with ErrHeartbeatTimeout when HeartbeatTimeout passes
	// after a PING without anything received from the peer. 0 means as long as
	// HeartbeatInterval. Time for which this socket itself did not read, since
	// its application took nothing, is not counted.
	//
	// HeartbeatTTL is what the PINGs ask of the peer: to end the connection when
	// it receives nothing for so long after one. It is sent in tenths of a
	// second, rounded down, and at most 6553.5 s. 0 asks for nothing.
	HeartbeatInterval, HeartbeatTimeout, HeartbeatTTL time.Duration

	// HandshakeTimeout bounds greeting and handshake of a new connection, and
	// without ConnectTimeout the exchange with a proxy before it. 0 means
	// DefaultHandshakeTimeout.
	HandshakeTimeout time.Duration

	// MinVersion is the lowest major version of ZMTP that a peer may speak: 1,
	// 2 or 3. 0 means 1, as libzmq has it; but with a security mechanism, or a
	// ZAP domain, none below 3 is let in, since those know no mechanisms. With
	// 3 the greeting leaves in one piece, which saves two round trips at the
	// beginning of a connection to a peer like ours.
	MinVersion int

	// MaxHandshakes bounds the accepted connections of the socket that are still
	// in their handshake, and the calls of an authenticator that run at once.
	// When one more connection arrives, the handshake that has waited longest
	// for its peer's next step is ended, if that is more than a quarter of a
	// second; so silent peers cannot keep others out. Handshakes that wait for
	// the authenticator are not ended for that. If none can be ended, new
	// connections wait in the system's queue (Backlog). 0 means
	// DefaultMaxHandshakes.
	MaxHandshakes int

	// MaxConnections bounds the accepted connections of the socket, including
	// those in their handshake. When one more arrives, a silent handshake is
	// ended for it as with MaxHandshakes. If there is none, the new connection
	// is closed at once, and the monitor is told of AcceptFailed with
	// ErrTooManyConnections. Since RecvHWM and RecvHWMBytes hold for each peer,
	// MaxConnections also bounds what all peers together can queue. 0 or negative
	// means no bound except the system's on open files: only the application
	// knows how many peers to expect.
	MaxConnections int

	// MaxMessageSize bounds a message, in bytes on the wire. A peer that
	// exceeds it is disconnected. 0 means DefaultMaxMessageSize; negative, or
	// more, means 1 MiB less than 4 GiB, or 512 MiB on systems of 32 bits. A
	// PUB, which is sent nothing but subscriptions, takes 1 MiB at most.
	MaxMessageSize int64

	// MaxIncompleteBytes bounds the memory, over all connections of the socket, of
	// messages that have arrived in part. A message counts from 128 KiB on, or
	// from up to 1 MiB on a connection whose messages are usually large. At the
	// bound, a connection whose message needs more memory is not read until
	// others have released some; only the one whose message began first goes on,
	// up to MaxMessageSize. A peer that stops or nearly stops in its message
	// while others wait is disconnected (ErrStalled). 0 means
	// DefaultMaxIncompleteBytes; negative means no bound.
	MaxIncompleteBytes int

	// MaxSubscriptions bounds the distinct topics of one subscriber at a
	// publisher, which together may have 16 MiB. A peer that exceeds either is
	// disconnected. 0 means DefaultMaxSubscriptions.
	MaxSubscriptions int

	// Metadata is sent to the peer in READY. Names begin with "X-".
	Metadata map[string]string

	// Mandatory makes a ROUTER report messages that it cannot route
	// (ErrUnroutable) and wait for room, instead of dropping them.
	Mandatory bool

	// FullPolicy is what a PUB or XPUB does with a subscriber whose queue is
	// full.
	FullPolicy Policy

	// WaitSubscriber makes Send of a PUB or XPUB wait while no peer is
	// subscribed to the message's topic, instead of dropping it.
	WaitSubscriber bool

	// SendTimeout bounds how long a call waits to send, and RecvTimeout how
	// long one waits to receive, beside its context; it then returns
	// ErrTimeout. 0 means for as long as the context lets it; negative means
	// not to wait at all.
	SendTimeout, RecvTimeout time.Duration

	// BusyPoll is for how long a receive call that reads the connection itself
	// looks for bytes before it sleeps, as long as that helps. It does so on
	// Linux while the socket has one peer, with more than one processor. 0
	// means DefaultBusyPoll; negative means not at all, which saves
	// processor time and makes short round trips longer.
	BusyPoll time.Duration

	// Immediate makes a DEALER, PUSH, REQ or PAIR queue messages only for peers
	// that are connected, not from Connect on. What was queued for a peer that
	// disconnects is then lost.
	Immediate bool

	// Conflate makes a PUSH, PULL, PUB, SUB or DEALER keep only the last message
	// in the queues to and from each peer: a newer one takes its place, and the
	// high-water marks do not matter. A message of several frames stays whole,
	// which libzmq does not support.
	Conflate bool

	// Handover makes a ROUTER give an identity to the peer that came with it
	// last, and end the connection of the one that had it (ErrHandedOver). By
	// default the newcomer waits until that one has gone; see ErrIdentityInUse.
	Handover bool

	// Notify makes a ROUTER receive an empty message, behind the identity, when
	// a peer connects, or disconnects, or both.
	Notify Notices

	// ProbeRouter makes a ROUTER, DEALER or REQ send an empty message first on
	// each new connection, so that a ROUTER at the other end learns its
	// identity. Peers of other types may take offence.
	ProbeRouter bool

	// ReqRelaxed lets a REQ send a request while another one waits for its
	// reply, which is then forgotten. ReqCorrelate makes it put a number before
	// each request, by which it knows the reply; all kinds of peers return it
	// (RFC 28). Use both together: otherwise the late reply to a request that was
	// forgotten is taken for that to the next.
	ReqRelaxed, ReqCorrelate bool

	// XPubVerbose makes an XPUB report every subscription, also to topics that
	// somebody has subscribed to before; XPubVerboser every subscription and
	// every end of one.
	XPubVerbose, XPubVerboser bool

	// XPubManual makes an XPUB report all subscriptions and put none in force:
	// the application does that, with XPub.Subscribe. XPubManualLastValue does
	// so too, and has the message that is sent next go to no one but the peer
	// whose subscription was received last: it can be the topic's last value.
	XPubManual, XPubManualLastValue bool

	// WelcomeMessage is sent by a PUB or XPUB to each new subscriber, as a
	// message of one frame, before anything else. A SUB takes it only if it is
	// subscribed to it. Empty means none.
	WelcomeMessage []byte

	// HelloMessage is sent by a DEALER or ROUTER on each new connection, as a
	// message of one frame, before anything else. Empty means none.
	HelloMessage []byte

	// DisconnectMessage is received by a ROUTER from a peer that had connected
	// to it, as a message of one frame behind the identity, when that
	// connection has ended, behind all that the peer sent. HiccupMessage is
	// received by a DEALER when a connection that it had made was lost. Empty
	// means none.
	DisconnectMessage, HiccupMessage []byte

	// OnlyFirstSubscribe makes an XSUB, PUB or XPUB take the frames of a
	// message for subscriptions only if the first of them is one. Otherwise
	// each frame that begins with byte 0 or 1 is.
	OnlyFirstSubscribe bool

	// InvertMatching makes a PUB or XPUB send to those who did not subscribe,
	// and a SUB receive what it did not subscribe to. Both sides must set it.
	InvertMatching bool

	// XSubVerboseUnsubscribe makes an XSUB send every end of a subscription,
	// not only that of the last one to a topic.
	XSubVerboseUnsubscribe bool

	// Prepare, if set, runs on every batch that arrives, in the goroutine
	// that read it and before it is queued: batches of different peers are
	// prepared in parallel. It may change bytes within a span, shorten a
	// span, set its Tag, drop spans, and rewrite the whole batch
	// ([Batch.Rewrite]). The batch is valid during the call
	// only. It must not wait for anything; it may disconnect the peer.
	Prepare func(*Batch)

	// Monitor, if set, is told of what happens to connections. It is called
	// from the goroutines that run them, several at a time, and must return at
	// once; so it must not close the socket. The events of one connection come
	// in their order, and MonitorStopped comes last of all. For a channel
	// instead, see MonitorChan.
	Monitor func(Event)
}

// Format prints o as package fmt prints any struct, but not SOCKSPassword.
func (o Options) Format(f fmt.State, verb rune) {
	type shown Options // without this method
	if o.SOCKSPassword != "" {
		o.SOCKSPassword = "(hidden)"
	}
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), shown(o))
}

// OptionError is one thing that is wrong with an [Options]. Sockets are refused
// with all of them at once, joined (errors.Join).
type OptionError struct {
	Field  string
	Reason string
}

func (e *OptionError) Error() string { return "sockets: option " + e.Field + ": " + e.Reason }

// withDefaults validates o, reports all problems at once, and returns a copy
// in which defaults are filled in and "no bound" is a very large number.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, &OptionError{field, fmt.Sprintf(format, args...)})
	}
	errs = append(errs, o.validateRouting()...)
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
			bad("Metadata", "name %q must be X- and 1 to 253 letters, digits or any of -_.+", p.Name)
		}
		bytes += len(p.Name) + len(p.Value)
	}
	if bytes > maxMetadata {
		bad("Metadata", "has %d bytes; at most %d are possible", bytes, maxMetadata)
	}
	if o.FullPolicy > Disconnect {
		bad("FullPolicy", "%v is none of Drop, Block, Disconnect", o.FullPolicy)
	}
	for _, f := range []struct {
		name  string
		value int
	}{
		{"SendBuffer", o.SendBuffer}, {"RecvBuffer", o.RecvBuffer},
		{"MaxHandshakes", o.MaxHandshakes}, {"MaxSubscriptions", o.MaxSubscriptions},
	} {
		if f.value < 0 {
			bad(f.name, "must not be negative")
		}
	}
	if o.HandshakeTimeout < 0 {
		bad("HandshakeTimeout", "must not be negative")
	}
	if o.ReconnectIntervalMax < 0 {
		bad("ReconnectIntervalMax", "must not be negative")
	}

	o.checkTransport(bad)
	o.checkSecurity(bad)
	o.checkHeartbeats(bad)
	o.checkVersion(bad)

	bound(&o.SendHWM, DefaultHWM)
	bound(&o.RecvHWM, DefaultHWM)
	bound(&o.SendHWMBytes, DefaultHWMBytes)
	bound(&o.RecvHWMBytes, DefaultHWMBytes)
	bound(&o.SendTotalBytes, DefaultSendTotal)
	bound(&o.MaxMessageSize, DefaultMaxMessageSize)
	o.MaxMessageSize = min(o.MaxMessageSize, maxMessage)
	bound(&o.MaxHandshakes, DefaultMaxHandshakes)
	bound(&o.MaxConnections, unbounded)
	bound(&o.MaxIncompleteBytes, DefaultMaxIncompleteBytes)
	bound(&o.MaxSubscriptions, DefaultMaxSubscriptions)
	if o.ReconnectInterval == 0 {
		o.ReconnectInterval = DefaultReconnectInterval
	}
	if o.ReconnectIntervalMax > 0 && o.ReconnectIntervalMax < o.ReconnectInterval {
		bad("ReconnectIntervalMax", "is smaller than ReconnectInterval, which is %v", o.ReconnectInterval)
	}
	if o.BusyPoll == 0 {
		o.BusyPoll = DefaultBusyPoll
	}
	if o.HandshakeTimeout == 0 {
		o.HandshakeTimeout = DefaultHandshakeTimeout
	}
	return o, errors.Join(errs...)
}

// maxMetadata bounds Options.Metadata, so that peers with bounds like ours take
// our READY.
const maxMetadata = 8 << 10

// bound puts the default for zero, and "without bound" for negative.
func bound[T int | int64](v *T, standard T) {
	switch {
	case *v == 0:
		*v = standard
	case *v < 0:
		*v = unbounded
	}
}

func (o *Options) metadata() zmtp.Metadata {
	var m zmtp.Metadata
	for _, name := range slices.Sorted(maps.Keys(o.Metadata)) {
		m = append(m, zmtp.Property{Name: name, Value: []byte(o.Metadata[name])})
	}
	return m
}

// unbounded stands for "no bound" in counts and sizes; it leaves room to add
// to it without overflow.
const unbounded = 1 << 30 << (^uint(0) >> 63 * 30)
