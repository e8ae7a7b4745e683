package link

import (
	"context"
	"errors"
	"net"
	"syscall"
)

// Schemes of endpoints.
const (
	TCP    = "tcp"
	IPC    = "ipc"
	Inproc = "inproc" // only its syntax is here: no bytes move within a process
)

// transport is one way to connect.
type transport struct {
	// parse fills in an endpoint from the text behind "://". It returns what is
	// wrong with the text, and the system's error for that if there is one. bind
	// tells endpoints to bind from those to connect to.
	parse func(e *Endpoint, text string, bind bool) (wrong string, cause error)
	// listen binds an endpoint. It sets Listener.Endpoint to what the wildcards
	// stand for.
	listen func(ctx context.Context, e Endpoint, o *Options) (*Listener, error)
	// dial connects to an endpoint. What it returns moves the bytes themselves: see
	// Stream.Init.
	dial func(ctx context.Context, e Endpoint, o *Options) (net.Conn, error)
	// local says that the other end is on this machine: connecting takes no time.
	local bool
}

// transports has every transport by its scheme.
var transports = map[string]transport{
	TCP:    {parse: parseTCP, listen: listenTCP, dial: dialTCP},
	IPC:    {parse: parseIPC, listen: listenIPC, dial: dialIPC, local: true},
	Inproc: {parse: parseInproc, local: true},
}

// Listener accepts the connections to one endpoint.
type Listener struct {
	net.Listener
	Endpoint string // with what the system chose for its wildcards

	options *Options
	remove  func() error // removes what is left in the file system; nil where nothing is
}

// Listen binds an endpoint. The context bounds the resolution of a name. The endpoint
// must not be of Inproc.
func Listen(ctx context.Context, e Endpoint, o Options) (*Listener, error) {
	l, err := transports[e.Scheme].listen(ctx, e, &o)
	if err != nil {
		return nil, err
	}
	l.options = &o
	if sc, ok := l.Listener.(syscall.Conn); ok && o.Backlog > 0 {
		if err := setBacklog(sc, o.Backlog); err != nil {
			_ = l.Close() // the other error came first
			return nil, err
		}
	}
	return l, nil
}

// Accept waits for the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err == nil {
		l.options.tune(nc)
	}
	return nc, err
}

// Close gives the address back.
func (l *Listener) Close() error {
	err := l.Listener.Close()
	if l.remove != nil {
		err = errors.Join(err, l.remove())
	}
	return err
}

// Dial makes one attempt to connect to an endpoint, which must not be of Inproc. It
// returns ErrSelf for a connection to itself and a *ProxyError for a fault of the
// proxy.
func Dial(ctx context.Context, e Endpoint, o Options) (net.Conn, error) {
	nc, err := transports[e.Scheme].dial(ctx, e, &o)
	if err == nil {
		o.tune(nc)
	}
	return nc, err
}
