package freelance

import (
	"context"
	"errors"
	"strings"
	"time"

	"clustermap/sockets"
)

// Defaults of ClientOptions. The first three are the guide's.
const (
	DefaultTimeout      = 3 * time.Second
	DefaultPingInterval = 2 * time.Second
	DefaultServerTTL    = 3 * DefaultPingInterval
	DefaultMaxRequests  = 10_000
)

// Defaults of ServerOptions.
const (
	DefaultConcurrency     = 64
	DefaultMaxWaiting      = 1000
	DefaultMaxWaitingBytes = 64 << 20
	DefaultMaxWait         = 10 * time.Second
)

// maxIdentity is the longest identity of a ZMTP peer, in bytes.
const maxIdentity = 255

// ClientOptions configures a Client. The zero value is a client that knows no
// server yet: see Client.Connect.
type ClientOptions struct {
	// Servers are the endpoints of the servers, in the order in which they are
	// preferred.
	Servers []string

	// RoundRobin begins each request at the next server that can be used. By
	// default all requests go to the first one of them, as the guide has it.
	RoundRobin bool

	// Timeout is how long a request may take if its context has no deadline. 0
	// means DefaultTimeout.
	Timeout time.Duration

	// PingInterval is after how long without a message from a server it is pinged;
	// a server at which a request waits is pinged sooner where the request's
	// deadline asks for it. 0 means DefaultPingInterval.
	PingInterval time.Duration

	// ServerTTL is after how long without a message a server is silent. Then it
	// gets no requests until it is heard again, and the connection is made anew
	// unless a request waits for its reply. It is longer than PingInterval; 0
	// means three times as long.
	ServerTTL time.Duration

	// Hedge is after how long a request is sent to the next server too, although
	// the server that has it answers pings. 0 means never.
	Hedge time.Duration

	// MaxRequests bounds the requests in progress; more fail with
	// ErrTooManyRequests. 0 means DefaultMaxRequests.
	MaxRequests int

	// MaxQueuedBytes bounds the bytes of requests that wait to be written to one
	// server. A request is queued while fewer bytes wait; otherwise it waits for
	// room, for as long as the server may be silent. 0 means
	// sockets.DefaultHWMBytes.
	MaxQueuedBytes int

	// MaxMessageSize bounds a message in bytes, in both directions. 0 means
	// sockets.DefaultMaxMessageSize.
	MaxMessageSize int64

	// Security is for all servers, but for those of Client.ConnectSecure.
	Security sockets.Security

	// Monitor, if set, is told what happens to the connections: see
	// sockets.Options.
	Monitor func(sockets.Event)
}

// withDefaults returns o with its defaults, or all that is wrong with it.
func (o ClientOptions) withDefaults() (ClientOptions, error) {
	var faults []error
	bad := func(field, reason string) { faults = append(faults, &OptionError{field, reason}) }
	for _, d := range []struct {
		field    string
		value    *time.Duration
		standard time.Duration
	}{
		{"Timeout", &o.Timeout, DefaultTimeout},
		{"PingInterval", &o.PingInterval, DefaultPingInterval},
		{"Hedge", &o.Hedge, 0},
	} {
		if *d.value < 0 {
			bad(d.field, "is negative")
		}
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	if o.ServerTTL == 0 {
		o.ServerTTL = 3 * o.PingInterval
	}
	if o.ServerTTL <= o.PingInterval {
		bad("ServerTTL", "is not longer than PingInterval")
	}
	if o.MaxRequests < 0 {
		bad("MaxRequests", "is negative")
	}
	if o.MaxQueuedBytes < 0 {
		bad("MaxQueuedBytes", "is negative")
	}
	if o.MaxRequests == 0 {
		o.MaxRequests = DefaultMaxRequests
	}
	if err := o.Security.Validate(); err != nil {
		bad("Security", err.Error())
	}
	return o, errors.Join(faults...)
}

// Handler executes a request and returns the frames of its reply. It is called from
// several goroutines at once, ServerOptions.Concurrency at most, and may keep the
// request. The context ends when the server is closed. A reply without frames is
// sent as one empty frame.
//
// An error is reported to clients of this package, which return it as a
// *HandlerError and do not try another server. Other clients get no reply, since
// RFC 10 has none for errors: a service that they use puts its errors into replies.
type Handler func(ctx context.Context, request [][]byte) (reply [][]byte, err error)

// ServerOptions configures a Server. Bind and Handler are needed.
type ServerOptions struct {
	// Bind is the endpoint to listen on, as sockets.Router.Bind takes it.
	Bind string

	// Advertise is the endpoint that clients connect to, and the server's
	// identity: exactly the text that clients are given, up to 255 bytes. It is
	// needed where Bind has a wildcard address, such as tcp://*:5555; default
	// Bind, with the port that the system chose if Bind has port 0 or *.
	Advertise string

	// Handler executes the requests.
	Handler Handler

	// Concurrency is how many handlers run at once. 0 means DefaultConcurrency.
	Concurrency int

	// MaxWaiting and MaxWaitingBytes bound the requests that wait for a handler,
	// of all clients together; MaxWaitingBytes counts all their frames, the
	// control frame too. A request is taken while fewer requests and fewer bytes
	// wait, or a handler is free; otherwise it is refused. 0 means
	// DefaultMaxWaiting and DefaultMaxWaitingBytes.
	MaxWaiting, MaxWaitingBytes int

	// MaxWait is how long a request may wait for a handler. Then it is refused,
	// since its client has given up by now. 0 means DefaultMaxWait.
	MaxWait time.Duration

	// MaxQueuedBytes bounds the bytes of replies that wait to be written to one
	// client. A reply is queued while fewer bytes wait; otherwise it is dropped,
	// so that a client that does not read holds up no handler. 0 means
	// sockets.DefaultHWMBytes.
	MaxQueuedBytes int

	// MaxTotalBytes bounds the bytes of replies that wait to be written to all clients
	// together. Beyond it the client with the most is disconnected
	// (sockets.ErrSlowPeer). 0 means sockets.DefaultSendTotal.
	MaxTotalBytes int

	// SkipDelimiter removes an empty first frame from the body of a request if
	// more frames follow. The guide's Python client puts one there, its C client
	// does not. By default the Handler gets it.
	SkipDelimiter bool

	// MaxMessageSize bounds a message in bytes; a client that exceeds it is
	// disconnected. 0 means sockets.DefaultMaxMessageSize.
	MaxMessageSize int64

	// MaxClients bounds the connections. 0 means no bound but the system's.
	MaxClients int

	// Security says who is let in.
	Security sockets.Security

	// Monitor, if set, is told what happens to the connections: see
	// sockets.Options.
	Monitor func(sockets.Event)
}

// withDefaults returns o with its defaults, or all that is wrong with it.
func (o ServerOptions) withDefaults() (ServerOptions, error) {
	var faults []error
	bad := func(field, reason string) { faults = append(faults, &OptionError{field, reason}) }
	if o.Handler == nil {
		bad("Handler", "is missing")
	}
	switch {
	case o.Bind == "":
		bad("Bind", "is empty")
	case o.Advertise == "" && wildcardAddress(o.Bind):
		bad("Advertise", "is needed: "+o.Bind+" is no endpoint that a client can connect to")
	case o.Advertise == "":
		checkIdentity(bad, "Bind", o.Bind)
	}
	if o.Advertise != "" {
		checkIdentity(bad, "Advertise", o.Advertise)
		if wildcardAddress(o.Advertise) || wildcardPort(o.Advertise) {
			bad("Advertise", "has a wildcard; give the endpoint that clients connect to")
		}
	}
	for _, n := range []struct {
		field    string
		value    *int
		standard int
	}{
		{"Concurrency", &o.Concurrency, DefaultConcurrency},
		{"MaxWaiting", &o.MaxWaiting, DefaultMaxWaiting},
		{"MaxWaitingBytes", &o.MaxWaitingBytes, DefaultMaxWaitingBytes},
		{"MaxQueuedBytes", &o.MaxQueuedBytes, 0},
		{"MaxTotalBytes", &o.MaxTotalBytes, sockets.DefaultSendTotal},
		{"MaxClients", &o.MaxClients, 0},
	} {
		if *n.value < 0 {
			bad(n.field, "is negative")
		}
		if *n.value == 0 {
			*n.value = n.standard
		}
	}
	if o.MaxWait < 0 {
		bad("MaxWait", "is negative")
	}
	if o.MaxWait == 0 {
		o.MaxWait = DefaultMaxWait
	}
	if err := o.Security.Validate(); err != nil {
		bad("Security", err.Error())
	}
	return o, errors.Join(faults...)
}

func checkIdentity(bad func(field, reason string), field, endpoint string) {
	if len(endpoint) > maxIdentity {
		bad(field, "is longer than 255 bytes, the longest identity there is")
	}
	if !strings.Contains(endpoint, "://") {
		bad(field, "has no transport; write it as tcp://host:port, ipc://path or inproc://name")
	}
}

// wildcardAddress reports whether an endpoint stands for all addresses of the
// machine, or for an address that is not known yet, and so for none that a client
// could connect to.
func wildcardAddress(endpoint string) bool {
	host, isTCP := strings.CutPrefix(endpoint, "tcp://")
	if !isTCP {
		return endpoint == "ipc://*"
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		host = host[:i]
	}
	switch host {
	case "*", "0.0.0.0", "[::]", "::", "[::0]", "[0:0:0:0:0:0:0:0]":
		return true
	}
	return false
}

// wildcardPort reports whether the port of an endpoint is the system's choice.
func wildcardPort(endpoint string) bool {
	return strings.HasPrefix(endpoint, "tcp://") && (strings.HasSuffix(endpoint, ":*") || strings.HasSuffix(endpoint, ":0"))
}
