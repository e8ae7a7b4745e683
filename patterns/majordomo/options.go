package majordomo

import (
	"cmp"
	"log/slog"
	"math"
	"strconv"
	"time"

	"clustermap/internal/option"
	"clustermap/sockets"
)

// BrokerOptions configures a Broker. The zero value works.
type BrokerOptions struct {
	// Heartbeat is the interval at which the broker sends a HEARTBEAT to a worker,
	// unless it sends other messages. A worker that sends nothing for Liveness *
	// Heartbeat, busy or not, is removed, and its requests go to other workers.
	// Workers should have the same values. 0 means DefaultHeartbeat and
	// DefaultLiveness.
	Heartbeat time.Duration
	Liveness  int

	// Expiry is the time that a request may wait for a worker; then it is dropped.
	// 0 means DefaultExpiry; negative means no limit.
	Expiry time.Duration

	// MaxDeliveries is the number of workers that may be lost while they execute a
	// request; then it is dropped. Connections of one Worker that are lost within
	// Heartbeat count once. 0 means DefaultMaxDeliveries.
	MaxDeliveries int

	// MaxServices bounds the services that have workers or waiting requests. When
	// it is reached, requests for other services are dropped. A worker of another
	// service replaces the oldest service without workers; if there is none, it is
	// refused. 0 means DefaultMaxServices.
	MaxServices int

	// MaxWorkers bounds the workers of all services. Others are refused. 0 means
	// DefaultMaxWorkers.
	MaxWorkers int

	// MaxWaiting and MaxWaitingBytes bound the number and the bytes of the requests
	// that wait for workers of one service, which count as for MaxBytes. A client may have as many waiting as
	// there is room left, so one client alone fills half of the queue; others are
	// dropped. Requests that a worker can execute at once do not count. 0 means
	// DefaultMaxWaiting and DefaultMaxWaitingBytes.
	MaxWaiting, MaxWaitingBytes int

	// MaxBytes bounds the bytes of all requests in the broker, including those that
	// workers have, and of partial replies for clients of version 0.1. A request counts as
	// its bytes and 512. A connection may have as many as there is room left, and a client
	// (the same key, user or address) seven eighths with all its connections. 0 means
	// DefaultMaxBytes.
	MaxBytes int

	// AllowWorker reports whether a peer may be a worker of a service. It can use the
	// peer's UserID, PublicKey and RemoteAddr. The broker answers other peers with
	// DISCONNECT, and logs who they are. It calls AllowWorker once for each READY, from
	// one goroutine, while it handles no other message: AllowWorker must return at once
	// and must not call the broker. nil means AllowWorkers(Socket), with which every peer
	// may be a worker of every service, but only few of those in TitanicPrefix. No peer can
	// be a worker of the services in ReservedPrefix, whatever AllowWorker returns.
	AllowWorker func(service string, worker *sockets.Peer) bool

	// Logger receives a warning for each worker that is refused, with who it is; fewer if
	// that repeats. nil means slog.Default().
	Logger *slog.Logger

	// Socket configures the ROUTER socket. The broker sets Notify to
	// NotifyDisconnect, and announces X-MDP and X-MDP-Welcome in Metadata. It refuses options that would
	// change its messages or its waits: another Notify, Mandatory, ProbeRouter,
	// HelloMessage, DisconnectMessage, RecvTimeout and SendTimeout. If 0, SendHWM is
	// 65,536, RecvHWM 4,096, SendTotalBytes sockets.DefaultSendTotal (1 GiB) and Linger
	// 500 ms. A peer whose queue is full is disconnected (sockets.ErrSlowPeer), and so
	// is the one with the longest queue if all queues exceed SendTotalBytes.
	Socket sockets.Options
}

// checker checks the options that are common to several kinds.
type checker struct{ option.Checker }

func newChecker() checker { return checker{option.Checker{Package: "majordomo"}} }

// beats checks Heartbeat and Liveness, whose product must be a valid duration.
func (c *checker) beats(heartbeat *time.Duration, liveness *int) {
	option.Default(&c.Checker, "Heartbeat", heartbeat, DefaultHeartbeat)
	option.Default(&c.Checker, "Liveness", liveness, DefaultLiveness)
	c.If(*liveness > 0 && *heartbeat > math.MaxInt64/time.Duration(*liveness), "Liveness", "times Heartbeat is longer than 292 years")
}

// decided reports an option of the socket that the caller has set although this package
// decides it.
func (c *checker) decided(field string, set bool) {
	c.If(set, "Socket."+field, "is set by this package")
}

// exchange checks the options that would change the messages or the waits of a socket.
func (c *checker) exchange(s *sockets.Options) {
	c.decided("ProbeRouter", s.ProbeRouter)
	c.decided("HelloMessage", s.HelloMessage != nil)
	c.decided("RecvTimeout", s.RecvTimeout != 0)
	c.decided("SendTimeout", s.SendTimeout != 0)
}

// connecting checks what a worker and a client have in common.
func (c *checker) connecting(broker string, v Version, reconnect, most *time.Duration, s *sockets.Options) {
	c.If(broker == "", "Broker", "is empty")
	c.If(v > Version02, "Version", "is neither Version01 nor Version02")
	option.Default(&c.Checker, "Reconnect", reconnect, DefaultReconnect)
	option.Default(&c.Checker, "ReconnectMax", most, max(DefaultReconnectMax, *reconnect))
	c.If(*most < *reconnect, "ReconnectMax", "is shorter than Reconnect")
	c.exchange(s)
	c.decided("Conflate", s.Conflate)
	c.decided("HiccupMessage", s.HiccupMessage != nil)
	c.decided("ReconnectStop", s.ReconnectStop != 0)
	c.If(s.ReconnectInterval != 0 || s.ReconnectIntervalMax != 0, "Socket.ReconnectInterval", "is set by this package: use Reconnect and ReconnectMax")
}

// withDefaults returns o with its defaults. The error reports all invalid fields.
func (o BrokerOptions) withDefaults() (BrokerOptions, error) {
	c := newChecker()
	c.beats(&o.Heartbeat, &o.Liveness)
	o.Expiry = min(cmp.Or(o.Expiry, DefaultExpiry), option.Forever)
	option.Default(&c.Checker, "MaxDeliveries", &o.MaxDeliveries, DefaultMaxDeliveries)
	option.Default(&c.Checker, "MaxServices", &o.MaxServices, DefaultMaxServices)
	option.Default(&c.Checker, "MaxWorkers", &o.MaxWorkers, DefaultMaxWorkers)
	option.Default(&c.Checker, "MaxWaiting", &o.MaxWaiting, DefaultMaxWaiting)
	option.Default(&c.Checker, "MaxWaitingBytes", &o.MaxWaitingBytes, DefaultMaxWaitingBytes)
	option.Default(&c.Checker, "MaxBytes", &o.MaxBytes, DefaultMaxBytes)
	if o.AllowWorker == nil {
		o.AllowWorker = AllowWorkers(o.Socket)
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	s := &o.Socket
	c.decided("Notify", s.Notify != 0 && s.Notify != sockets.NotifyDisconnect)
	c.decided("Mandatory", s.Mandatory)
	c.decided("DisconnectMessage", s.DisconnectMessage != nil)
	c.exchange(s)
	s.Notify = sockets.NotifyDisconnect
	s.SendHWM = cmp.Or(s.SendHWM, 65536)
	s.RecvHWM = cmp.Or(s.RecvHWM, 4096)
	s.SendTotalBytes = cmp.Or(s.SendTotalBytes, sockets.DefaultSendTotal)
	s.Linger = cmp.Or(s.Linger, 500*time.Millisecond)
	announce(s, map[string]string{propertyWelcome: "1"})
	return o, c.Err()
}

// WorkerOptions configures a Worker. Broker is required.
type WorkerOptions struct {
	// Broker is the endpoint of the broker: see sockets.Dealer.Connect.
	Broker string

	// Version is the version of the protocol. The default is Version01.
	Version Version

	// Concurrency bounds the requests that are handled at once, up to
	// MaxConcurrency. Each has its own connection and is a worker to the broker,
	// since an MDP worker handles one request at a time. 0 means
	// DefaultConcurrency.
	Concurrency int

	// Heartbeat is the interval at which the worker sends a HEARTBEAT, unless it
	// sends other messages, also while it handles a request. If the broker sends
	// nothing for Liveness * Heartbeat, the worker reconnects. Brokers of other
	// implementations send nothing to a busy worker, so their silence counts only
	// while there is no request. 0 means DefaultHeartbeat and DefaultLiveness.
	Heartbeat time.Duration
	Liveness  int

	// Ahead is the number of requests that a broker of this package may send on
	// each connection before it has the reply to the first, up to 1024. It does so
	// for workers that reply within milliseconds, which then handle many more
	// requests per second. The worker still handles them one by one. 1 disables
	// this; 0 means DefaultAhead. Other brokers do not send ahead.
	Ahead int

	// Reconnect is the wait before the worker reconnects. It doubles with each
	// failure up to ReconnectMax; half of it is random. 0 means DefaultReconnect
	// and DefaultReconnectMax.
	Reconnect, ReconnectMax time.Duration

	// OnDismiss, if set, is called when the broker sends DISCONNECT: it refuses this
	// worker, or is ending. The worker tries again. Calls may be concurrent, one for each
	// connection; OnDismiss must return at once and must not call Close.
	OnDismiss func()

	// Socket configures the DEALER sockets. The worker sets Immediate, and announces
	// X-MDP, X-MDP-Ahead and X-MDP-Instance in Metadata. It refuses options that would change its
	// messages, its waits or how it connects: ProbeRouter, Conflate, HelloMessage,
	// HiccupMessage, RecvTimeout, SendTimeout, ReconnectStop, and ReconnectInterval and
	// ReconnectIntervalMax, in place of which there are Reconnect and ReconnectMax. If
	// 0, Linger is 250 ms. If HeartbeatInterval, for the heartbeats of ZMTP, is 0, it is Heartbeat, and
	// HeartbeatTimeout is Liveness * Heartbeat.
	Socket sockets.Options
}

func (o WorkerOptions) withDefaults() (WorkerOptions, error) {
	c := newChecker()
	c.connecting(o.Broker, o.Version, &o.Reconnect, &o.ReconnectMax, &o.Socket)
	option.Default(&c.Checker, "Concurrency", &o.Concurrency, DefaultConcurrency)
	c.If(o.Concurrency > MaxConcurrency, "Concurrency", "is above "+strconv.Itoa(MaxConcurrency))
	c.beats(&o.Heartbeat, &o.Liveness)
	option.Default(&c.Checker, "Ahead", &o.Ahead, DefaultAhead)
	c.If(o.Ahead > maxAhead, "Ahead", "is above "+strconv.Itoa(maxAhead))
	return o, c.Err()
}

// ClientOptions configures a Client. Broker is required.
type ClientOptions struct {
	// Broker is the endpoint of the broker: see sockets.Dealer.Connect.
	Broker string

	// Version is the version of the protocol. The default is Version01.
	Version Version

	// Attempts bounds the times that a request is sent before it fails with
	// ErrNoReply. It is sent again when its connection is lost, or after Timeout.
	// Only the context bounds the wait for a connection. 0 means DefaultAttempts.
	Attempts int

	// Timeout is the time limit of an attempt with a broker of another
	// implementation; then the request is sent again on a new connection. 0 means
	// DefaultTimeout; negative means no limit but the context. A broker of this
	// package loses no request while the connection lasts, so Timeout does not
	// apply.
	Timeout time.Duration

	// Connections bounds the connections to a broker of another implementation.
	// Its replies do not identify the request, so each connection carries one
	// request at a time, and further requests wait. With a broker of this package
	// all requests share one connection. 0 means DefaultConnections.
	Connections int

	// MaxReply bounds the unread parts of a reply; for Client.Request, all parts. It is in
	// bytes, with about 64 for each part and 24 for each frame besides its content. 0
	// means DefaultMaxReply.
	MaxReply int

	// Reconnect is the wait before the client reconnects. It doubles with each
	// failure up to ReconnectMax. 0 means DefaultReconnect and DefaultReconnectMax.
	Reconnect, ReconnectMax time.Duration

	// Socket configures the DEALER sockets. The client sets Immediate, and announces
	// X-MDP in Metadata. It refuses the same options as a worker. If 0, Linger is 250
	// ms, and HeartbeatInterval 2.5 s with a HeartbeatTimeout of 7.5 s.
	Socket sockets.Options
}

func (o ClientOptions) withDefaults() (ClientOptions, error) {
	c := newChecker()
	c.connecting(o.Broker, o.Version, &o.Reconnect, &o.ReconnectMax, &o.Socket)
	option.Default(&c.Checker, "Attempts", &o.Attempts, DefaultAttempts)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	option.Default(&c.Checker, "Connections", &o.Connections, DefaultConnections)
	option.Default(&c.Checker, "MaxReply", &o.MaxReply, DefaultMaxReply)
	return o, c.Err()
}
