package majordomo

import (
	"errors"
	"math"
	"strconv"
	"time"

	"clustermap/sockets"
)

// Defaults of the options. Those of heartbeats and of a client's attempts are the
// guide's.
const (
	DefaultHeartbeat = 2500 * time.Millisecond
	DefaultLiveness  = 3

	DefaultExpiry          = time.Minute
	DefaultMaxDeliveries   = 3
	DefaultMaxServices     = 4096
	DefaultMaxWorkers      = 16384
	DefaultMaxWaiting      = 65536
	DefaultMaxWaitingBytes = 64 << 20
	DefaultMaxBytes        = 256 << 20

	DefaultConcurrency  = 1
	DefaultAhead        = 256
	DefaultReconnect    = 100 * time.Millisecond
	DefaultReconnectMax = 2500 * time.Millisecond

	DefaultTimeout     = 2500 * time.Millisecond
	DefaultAttempts    = 3
	DefaultConnections = 16
	DefaultMaxReply    = 256 << 20
)

// MaxConcurrency is the largest WorkerOptions.Concurrency: each request at once takes
// a connection.
const MaxConcurrency = 16384

// BrokerOptions configures a Broker. The zero value works.
type BrokerOptions struct {
	// Heartbeat is how often a worker that is sent nothing else is sent a
	// HEARTBEAT. A worker that sends nothing for Liveness times Heartbeat, busy or
	// not, is given up, and its requests are given to other workers. Workers should
	// have the same values. 0 means DefaultHeartbeat and DefaultLiveness.
	Heartbeat time.Duration
	Liveness  int

	// Expiry is how long a request waits for a worker before it is dropped. 0 means
	// DefaultExpiry; negative means for ever.
	Expiry time.Duration

	// MaxDeliveries is to how many workers a request is given, one after the other,
	// if they end or fall silent over it. 0 means DefaultMaxDeliveries.
	MaxDeliveries int

	// MaxServices bounds the services: those that have a worker, and those that
	// requests wait for. Beyond it, requests for other names are dropped and workers
	// of other services refused. 0 means DefaultMaxServices.
	MaxServices int

	// MaxWorkers bounds the workers of all services. More are refused. 0 means
	// DefaultMaxWorkers.
	MaxWorkers int

	// MaxWaiting and MaxWaitingBytes bound the requests that wait for workers of one
	// service, by number and by the bytes of their bodies. A client may have as
	// many waiting as there is room left for others: one client alone fills half of
	// the queue. More are dropped. A request that a worker can do at once does not
	// count. 0 means DefaultMaxWaiting and DefaultMaxWaitingBytes.
	MaxWaiting, MaxWaitingBytes int

	// MaxBytes bounds the bytes of all requests in the broker, those included that
	// workers have and the partial replies kept for clients of version 0.1. 0
	// means DefaultMaxBytes.
	MaxBytes int

	// Socket configures the ROUTER socket: security, the number of connections
	// (MaxConnections), the size of messages, the monitor. The broker sets Notify
	// and Mandatory itself, and announces X-MDP in Metadata. Where they are 0,
	// SendHWM is 65,536, RecvHWM 4,096, SendTotalBytes sockets.DefaultSendTotal (1 GiB)
	// and Linger 500 ms. A client that does not take its replies, so that its queue is
	// full, is disconnected (sockets.ErrSlowPeer), and so is the one with the longest
	// queue when all together are beyond SendTotalBytes.
	Socket sockets.Options
}

// checker collects the faults of an options struct.
type checker struct{ faults []error }

func (c *checker) bad(field, reason string) {
	c.faults = append(c.faults, &OptionError{field, reason})
}

// count fills in the default of a number, which must not be negative.
func (c *checker) count(field string, n *int, standard int) {
	if *n < 0 {
		c.bad(field, "is negative")
	}
	if *n == 0 {
		*n = standard
	}
}

// time is count for a time.
func (c *checker) time(field string, d *time.Duration, standard time.Duration) {
	if *d < 0 {
		c.bad(field, "is negative")
	}
	if *d == 0 {
		*d = standard
	}
}

// beats is for Heartbeat and Liveness, whose product is a time too.
func (c *checker) beats(heartbeat *time.Duration, liveness *int) {
	c.time("Heartbeat", heartbeat, DefaultHeartbeat)
	c.count("Liveness", liveness, DefaultLiveness)
	if *liveness > 0 && *heartbeat > math.MaxInt64/time.Duration(*liveness) {
		c.bad("Liveness", "times Heartbeat is longer than 292 years")
	}
}

func (c *checker) err() error { return errors.Join(c.faults...) }

// withDefaults returns o with its defaults, or all that is wrong with it.
func (o BrokerOptions) withDefaults() (BrokerOptions, error) {
	var c checker
	c.beats(&o.Heartbeat, &o.Liveness)
	if o.Expiry == 0 {
		o.Expiry = DefaultExpiry
	}
	c.count("MaxDeliveries", &o.MaxDeliveries, DefaultMaxDeliveries)
	c.count("MaxServices", &o.MaxServices, DefaultMaxServices)
	c.count("MaxWorkers", &o.MaxWorkers, DefaultMaxWorkers)
	c.count("MaxWaiting", &o.MaxWaiting, DefaultMaxWaiting)
	c.count("MaxWaitingBytes", &o.MaxWaitingBytes, DefaultMaxWaitingBytes)
	c.count("MaxBytes", &o.MaxBytes, DefaultMaxBytes)
	s := &o.Socket
	s.Notify, s.Mandatory = sockets.NotifyDisconnect, false
	s.DisconnectMessage = nil
	if s.SendHWM == 0 {
		s.SendHWM = 65536
	}
	if s.RecvHWM == 0 {
		s.RecvHWM = 4096
	}
	if s.SendTotalBytes == 0 {
		s.SendTotalBytes = sockets.DefaultSendTotal
	}
	if s.Linger == 0 {
		s.Linger = 500 * time.Millisecond
	}
	announce(s, nil)
	return o, c.err()
}

// WorkerOptions configures a Worker. Broker is needed.
type WorkerOptions struct {
	// Broker is the endpoint of the broker, as sockets.Dealer.Connect takes it.
	Broker string

	// Version is that of the protocol. Default Version01.
	Version Version

	// Concurrency is how many requests are handled at once. Each has a connection
	// of its own, since a worker of MDP handles one request at a time; the broker
	// takes them for so many workers. At most MaxConcurrency. 0 means
	// DefaultConcurrency.
	Concurrency int

	// Heartbeat is how often the broker is sent a HEARTBEAT if it is sent nothing
	// else, also while a request is handled. A broker that sends nothing for
	// Liveness times Heartbeat is given up, and the worker connects anew. Brokers of
	// other makes send a busy worker nothing, so their silence counts only while
	// there is no request. 0 means DefaultHeartbeat and DefaultLiveness.
	Heartbeat time.Duration
	Liveness  int

	// Ahead is how many requests a broker of this package may send on each
	// connection before it has the reply to the first, at most 1024. It does so for
	// workers that answer within milliseconds, and the connection then carries many
	// times as many requests a second. The worker still handles them one by one. 1
	// means none ahead; 0 means DefaultAhead. Other brokers send none ahead.
	Ahead int

	// Reconnect is the wait before a connection is made again after it was lost or
	// the broker has ended it. It doubles with each failure up to ReconnectMax,
	// and a random half of it is left out. 0 means DefaultReconnect and
	// DefaultReconnectMax.
	Reconnect, ReconnectMax time.Duration

	// Socket configures the DEALER sockets: security, the size of messages, the
	// monitor. The worker sets what concerns connecting and Immediate itself, and
	// announces X-MDP and X-MDP-Ahead in Metadata. Where they are 0,
	// HeartbeatInterval is Heartbeat and HeartbeatTimeout is Liveness times that:
	// the heartbeats of ZMTP, which every broker's socket answers.
	Socket sockets.Options
}

func (o WorkerOptions) withDefaults() (WorkerOptions, error) {
	var c checker
	if o.Broker == "" {
		c.bad("Broker", "is empty")
	}
	if o.Version > Version02 {
		c.bad("Version", "is neither Version01 nor Version02")
	}
	c.count("Concurrency", &o.Concurrency, DefaultConcurrency)
	if o.Concurrency > MaxConcurrency {
		c.bad("Concurrency", "is above "+strconv.Itoa(MaxConcurrency))
	}
	c.beats(&o.Heartbeat, &o.Liveness)
	c.count("Ahead", &o.Ahead, DefaultAhead)
	if o.Ahead > maxAhead {
		c.bad("Ahead", "is above "+strconv.Itoa(maxAhead))
	}
	c.time("Reconnect", &o.Reconnect, DefaultReconnect)
	c.time("ReconnectMax", &o.ReconnectMax, max(DefaultReconnectMax, o.Reconnect))
	if o.ReconnectMax < o.Reconnect {
		c.bad("ReconnectMax", "is shorter than Reconnect")
	}
	return o, c.err()
}

// ClientOptions configures a Client. Broker is needed.
type ClientOptions struct {
	// Broker is the endpoint of the broker, as sockets.Dealer.Connect takes it.
	Broker string

	// Version is that of the protocol. Default Version01.
	Version Version

	// Attempts is how often a request is sent before it fails with ErrNoReply: once,
	// and again each time that the connection on which it was sent is lost. 0 means
	// DefaultAttempts. The wait for a connection is bounded by the context alone.
	Attempts int

	// Timeout is how long an attempt waits for its reply at a broker of another
	// make; then the connection is given up, and the request is sent on a new one. 0
	// means DefaultTimeout; negative means to wait for as long as the context
	// lets it. A broker of this package loses no request while the connection
	// lasts, so with it only the context bounds the wait.
	Timeout time.Duration

	// Connections bounds the connections to a broker of another make, which has no
	// way to say which request a reply is for: each carries one request at a time,
	// and more requests wait for their turn. With a broker of this package one
	// connection carries all of them. 0 means DefaultConnections.
	Connections int

	// MaxReply bounds the bytes of a reply in parts that are kept for the caller. 0
	// means DefaultMaxReply.
	MaxReply int

	// Reconnect is the wait before a connection is tried again. It doubles with each
	// failure up to ReconnectMax. 0 means DefaultReconnect and
	// DefaultReconnectMax.
	Reconnect, ReconnectMax time.Duration

	// Socket configures the DEALER sockets: security, the size of messages, the
	// monitor. The client sets what concerns connecting and Immediate itself, and
	// announces X-MDP in Metadata. Where they are 0, HeartbeatInterval is 2.5 s and
	// HeartbeatTimeout 7.5 s.
	Socket sockets.Options
}

func (o ClientOptions) withDefaults() (ClientOptions, error) {
	var c checker
	if o.Broker == "" {
		c.bad("Broker", "is empty")
	}
	if o.Version > Version02 {
		c.bad("Version", "is neither Version01 nor Version02")
	}
	c.count("Attempts", &o.Attempts, DefaultAttempts)
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	c.count("Connections", &o.Connections, DefaultConnections)
	c.count("MaxReply", &o.MaxReply, DefaultMaxReply)
	c.time("Reconnect", &o.Reconnect, DefaultReconnect)
	c.time("ReconnectMax", &o.ReconnectMax, max(DefaultReconnectMax, o.Reconnect))
	if o.ReconnectMax < o.Reconnect {
		c.bad("ReconnectMax", "is shorter than Reconnect")
	}
	return o, c.err()
}
