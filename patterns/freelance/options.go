package freelance

import (
	"cmp"
	"context"
	"net/netip"
	"strings"
	"time"

	netlink "clustermap/internal/link"
	"clustermap/internal/option"
	"clustermap/sockets"
)

// ClientOptions configures a Client. The zero value has no servers: see
// Client.Connect.
type ClientOptions struct {
	// Servers are the endpoints of the servers, in order of preference.
	Servers []string

	// RoundRobin makes each request start at the next server. By default all
	// requests go to the first usable server, as in the guide.
	RoundRobin bool

	// Timeout is the time limit of a request whose context has no deadline. 0
	// means DefaultTimeout.
	Timeout time.Duration

	// PingInterval is the time without a message from a server after which the
	// client pings it. Requests with near deadlines cause earlier pings. 0 means
	// DefaultPingInterval.
	PingInterval time.Duration

	// ServerTTL is the time without a message after which a server is silent. A
	// silent server gets no requests until it is heard again, and the client
	// reconnects unless a request waits for its reply. ServerTTL must be longer
	// than PingInterval. 0 means 3 * PingInterval.
	ServerTTL time.Duration

	// Hedge is the time after which a request is also sent to the next server,
	// even if the current one answers pings. 0 means never.
	Hedge time.Duration

	// MaxRequests bounds the requests in progress. Further ones fail with
	// ErrTooManyRequests. 0 means DefaultMaxRequests.
	MaxRequests int

	// MaxQueuedBytes bounds the bytes of requests that wait to be written to one
	// server. The request that reaches the bound may exceed it. Further requests
	// wait for room during the server's share of their time. 0 means
	// sockets.DefaultHWMBytes.
	MaxQueuedBytes int

	// MaxMessageSize bounds the size of a message in bytes, in both directions. 0
	// means sockets.DefaultMaxMessageSize.
	MaxMessageSize int64

	// Security applies to all servers except those of Client.ConnectSecure.
	Security sockets.Security

	// Monitor, if set, is called with the events of the connections: see
	// sockets.Options.
	Monitor func(sockets.Event)
}

// withDefaults returns o with its defaults. The error reports all invalid fields.
func (o ClientOptions) withDefaults() (ClientOptions, error) {
	c := option.Checker{Package: "freelance"}
	option.Default(&c, "Timeout", &o.Timeout, DefaultTimeout)
	option.Default(&c, "PingInterval", &o.PingInterval, DefaultPingInterval)
	option.Default(&c, "Hedge", &o.Hedge, 0)
	o.ServerTTL = cmp.Or(o.ServerTTL, 3*o.PingInterval)
	c.If(o.ServerTTL <= o.PingInterval, "ServerTTL", "is not longer than PingInterval")
	option.Default(&c, "MaxRequests", &o.MaxRequests, DefaultMaxRequests)
	option.Default(&c, "MaxQueuedBytes", &o.MaxQueuedBytes, 0)
	c.Valid("Security", o.Security.Validate())
	return o, c.Err()
}

// Handler executes a request and returns the frames of its reply. Up to
// ServerOptions.Concurrency goroutines call it at once. It may keep the request. Closing
// the server cancels the context. A reply without frames is sent as one empty frame.
//
// A client of this package returns the handler's error as a *HandlerError and does not
// try another server. Other clients get no reply, since RFC 10 has no message for
// errors: report errors to them in replies.
type Handler func(ctx context.Context, request [][]byte) (reply [][]byte, err error)

// ServerOptions configures a Server. Bind and Handler are required.
type ServerOptions struct {
	// Bind is the endpoint to listen on: see sockets.Router.Bind.
	Bind string

	// Advertise is the endpoint to which clients connect, and the server's
	// identity, up to 255 bytes. Clients of the guide must be given exactly this
	// text. It is required if Bind has a wildcard address, such as tcp://*:5555.
	// The default is Bind, with the port that the system chose if Bind has port 0
	// or *.
	Advertise string

	// Handler executes the requests.
	Handler Handler

	// Concurrency bounds the handlers that run at once. 0 means
	// DefaultConcurrency.
	Concurrency int

	// MaxWaiting and MaxWaitingBytes bound the number and the bytes of the
	// requests of all clients that wait for a handler. The bytes include control
	// frames, and 24 for each frame. While either is reached, the server refuses requests;
	// those of one client (the same key, user or address) already at seven eighths. 0 means
	// DefaultMaxWaiting and DefaultMaxWaitingBytes.
	MaxWaiting, MaxWaitingBytes int

	// MaxWait is the time that a request may wait for a handler. The server
	// refuses older ones, since their clients have probably given up. 0 means
	// DefaultMaxWait.
	MaxWait time.Duration

	// MaxQueuedBytes bounds the bytes of replies that wait to be written to one
	// client. The reply that reaches the bound may exceed it. Further replies are
	// dropped, so a client that does not read blocks no handler. 0 means
	// sockets.DefaultHWMBytes.
	MaxQueuedBytes int

	// MaxTotalBytes bounds the bytes of replies that wait to be written to all
	// clients together. When it is exceeded, the client with the most is
	// disconnected (sockets.ErrSlowPeer). 0 means sockets.DefaultSendTotal.
	MaxTotalBytes int

	// SkipDelimiter removes an empty first frame from the body of a request if
	// more frames follow. The guide's Python client sends one, its C client does
	// not. By default the Handler gets it.
	SkipDelimiter bool

	// MaxMessageSize bounds the size of a message in bytes. A client that exceeds
	// it is disconnected. 0 means sockets.DefaultMaxMessageSize.
	MaxMessageSize int64

	// MaxClients bounds the connections. 0 means no limit except the system's.
	MaxClients int

	// Security configures encryption and authentication.
	Security sockets.Security

	// Monitor, if set, is called with the events of the connections: see
	// sockets.Options.
	Monitor func(sockets.Event)
}

// withDefaults returns o with its defaults. The error reports all invalid fields.
func (o ServerOptions) withDefaults() (ServerOptions, error) {
	c := option.Checker{Package: "freelance"}
	c.If(o.Handler == nil, "Handler", "is missing")
	switch {
	case o.Bind == "":
		c.Bad("Bind", "is empty")
	case o.Advertise == "" && wildcardAddress(o.Bind):
		c.Bad("Advertise", "is required: no client can connect to %s", o.Bind)
	case o.Advertise == "":
		checkIdentity(&c, "Bind", o.Bind)
	}
	if o.Advertise != "" {
		checkIdentity(&c, "Advertise", o.Advertise)
		if wildcardAddress(o.Advertise) || wildcardPort(o.Advertise) {
			c.Bad("Advertise", "has a wildcard; give the endpoint to which clients connect")
		}
	}
	option.Default(&c, "Concurrency", &o.Concurrency, DefaultConcurrency)
	option.Default(&c, "MaxWaiting", &o.MaxWaiting, DefaultMaxWaiting)
	option.Default(&c, "MaxWaitingBytes", &o.MaxWaitingBytes, DefaultMaxWaitingBytes)
	option.Default(&c, "MaxQueuedBytes", &o.MaxQueuedBytes, 0)
	option.Default(&c, "MaxTotalBytes", &o.MaxTotalBytes, sockets.DefaultSendTotal)
	option.Default(&c, "MaxClients", &o.MaxClients, 0)
	option.Default(&c, "MaxWait", &o.MaxWait, DefaultMaxWait)
	c.Valid("Security", o.Security.Validate())
	return o, c.Err()
}

func checkIdentity(c *option.Checker, field, endpoint string) {
	c.If(len(endpoint) > maxIdentity, field, "is longer than 255 bytes, the limit of an identity")
	c.If(!strings.Contains(endpoint, "://"), field, "has no transport; write it as tcp://host:port, ipc://path or inproc://name")
}

// wildcardAddress reports whether an endpoint stands for all addresses of the machine,
// or for one that is chosen later. No client can connect to it.
func wildcardAddress(endpoint string) bool {
	e, err := netlink.Parse(endpoint, true)
	if err != nil {
		return false // what is wrong with it is found elsewhere
	}
	if e.Scheme != netlink.TCP {
		return e.Scheme == netlink.IPC && e.Name == ""
	}
	ip, err := netip.ParseAddr(e.Host())
	return e.Host() == "" || err == nil && ip.IsUnspecified()
}

// wildcardPort reports whether the system chooses the port of an endpoint.
func wildcardPort(endpoint string) bool {
	e, err := netlink.Parse(endpoint, true)
	return err == nil && e.Scheme == netlink.TCP && e.Port() == 0
}
