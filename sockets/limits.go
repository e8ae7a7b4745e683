package sockets

import (
	"time"

	"clustermap/internal/engine"
)

// Default values of [Options] fields.
const (
	DefaultHWM               = 1000                   // SendHWM and RecvHWM: messages per peer, as in libzmq
	DefaultHWMBytes          = 64 << 20               // SendHWMBytes and RecvHWMBytes: bytes per peer
	DefaultSendTotal         = 1 << 30                // SendTotalBytes: bytes for all peers
	DefaultRecvTotal         = 1 << 30                // RecvTotalBytes: bytes from all peers
	DefaultLinger            = engine.DefaultLinger   // Linger: upper limit if Linger is 0
	DefaultReconnectInterval = 100 * time.Millisecond // ReconnectInterval
	DefaultHandshakeTimeout  = 30 * time.Second       // HandshakeTimeout
	DefaultConnectTimeout    = 10 * time.Second       // ConnectTimeout
	DefaultBusyPoll          = 100 * time.Microsecond // BusyPoll
	DefaultMaxHandshakes     = 1024                   // MaxHandshakes
	DefaultMaxMessageSize    = 256 << 20              // MaxMessageSize: bytes
	DefaultMaxSubscriptions  = 100_000                // MaxSubscriptions: topics per subscriber

	DefaultMaxIncompleteBytes   = 256 << 20 // MaxIncompleteBytes: bytes per socket
	DefaultMaxSubscriptionBytes = 256 << 20 // MaxSubscriptionBytes: bytes per socket
)

// DefaultReconnectIntervalMax is the longest time that a socket waits by
// default before it connects again to a peer that has refused it; see
// [Options.ReconnectIntervalMax].
const DefaultReconnectIntervalMax = engine.DefaultReconnectIntervalMax

// DefaultWriterSize is the size in bytes of the buffer of a [Writer].
const DefaultWriterSize = 64 << 10

// LingerPatience is how long, by default, Close waits for a peer that takes
// no bytes. On Linux, a peer takes bytes when its system acknowledges bytes or our
// own system accepts bytes for it; on other systems only the latter can be observed.
// Connecting and completing the handshake also count, once.
const LingerPatience = engine.LingerPatience

// maxHeartbeatTTL is the longest TTL that a PING can carry, in whole tenths of
// a second after rounding down.
const maxHeartbeatTTL = (1<<16)*engine.PingUnit - time.Millisecond

// maxMetadata limits the size of Options.Metadata, so that peers with the same
// handshake limits as ours accept our READY.
const maxMetadata = 8 << 10

// maxInterfaceName is the longest name of a network interface on Linux.
const maxInterfaceName = 15

// maxSubscription limits the size of a message to a PUB. A PUB only accepts
// subscriptions and discards everything else, so there is no point in
// collecting large messages.
const maxSubscription = 1 << 20

// maxUnwanted limits the size of a message to a socket that receives none. The
// message is discarded, so there is no point in collecting a large one first.
const maxUnwanted = 64 << 10

// keepEnvelope is the capacity of the largest buffer that is kept for the next
// envelope.
const keepEnvelope = 4 << 10

// maxStale limits how often a request looks for unread messages that came
// before it, so that a peer that sends without end does not delay it.
const maxStale = 8

// subscriptionBurst is how many messages of a subscriber are processed before other
// goroutines can publish again.
const subscriptionBurst = 256
