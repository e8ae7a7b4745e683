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
	Inproc = "inproc" // only parsed here; package sockets implements it
)

// transport holds the functions of a transport.
type transport struct {
	// parse parses the text after "://" into e. If the text is invalid, wrong
	// is the reason, and cause the corresponding system error or nil. bind is
	// true for an endpoint to bind, false for one to connect to.
	parse func(e *Endpoint, text string, bind bool) (wrong string, cause error)
	// listen binds an endpoint. It replaces the wildcards in Listener.Endpoint.
	listen func(ctx context.Context, e Endpoint, o *Options) (*Listener, error)
	// dial connects to an endpoint.
	dial func(ctx context.Context, e Endpoint, o *Options) (net.Conn, error)
	// local reports whether the other end is always on this machine.
	local bool
}

// transports maps schemes to transports.
var transports = map[string]transport{
	TCP:    {parse: parseTCP, listen: listenTCP, dial: dialTCP},
	IPC:    {parse: parseIPC, listen: listenIPC, dial: dialIPC, local: true},
	Inproc: {parse: parseInproc, local: true},
}

// Listener accepts the connections to one endpoint.
type Listener struct {
	net.Listener
	Endpoint string // with the actual values in place of wildcards

	options *Options
	remove  func() error // removes the file before closing; may be nil
	tidy    func() error // removes the directory after closing; may be nil
}

// Listen binds an endpoint, which must not be an inproc endpoint. The context
// limits the resolution of a name.
func Listen(ctx context.Context, e Endpoint, o Options) (*Listener, error) {
	l, err := transports[e.Scheme].listen(ctx, e, &o)
	if err != nil {
		return nil, err
	}
	l.options = &o
	if sc, ok := l.Listener.(syscall.Conn); ok && o.Backlog > 0 {
		if err := setBacklog(sc, o.Backlog); err != nil {
			_ = l.Close() // err is more important
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

// Close stops listening and removes the files of the listener.
func (l *Listener) Close() (err error) {
	if l.remove != nil {
		// While the socket is open, no other one takes its file for stale and replaces it.
		err = l.remove()
	}
	if sc, ok := l.Listener.(syscall.Conn); ok && l.options.ListenWith == nil { // others may share theirs with a process
		release(sc)
	}
	err = errors.Join(err, l.Listener.Close())
	if l.tidy != nil {
		err = errors.Join(err, l.tidy())
	}
	return err
}

// Dial makes one attempt to connect to an endpoint, which must not be an inproc
// endpoint. It returns ErrSelf for a connection to itself, and a *ProxyError if the
// proxy fails or refuses.
func Dial(ctx context.Context, e Endpoint, o Options) (net.Conn, error) {
	nc, err := transports[e.Scheme].dial(ctx, e, &o)
	if err == nil {
		o.tune(nc)
	}
	return nc, err
}
