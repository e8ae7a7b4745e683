package link

import (
	"cmp"
	"context"
	"errors"
	"net"
	"syscall"
)

// dialFunc makes one attempt to connect, like net.Dialer.DialContext.
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

var (
	errNoConnection = errors.New("sockets: Options.Dial has returned neither a connection nor an error")
	errNoListener   = errors.New("sockets: Options.Listen has returned neither a listener nor an error")
)

// dialWith calls DialWith.
func (o *Options) dialWith(ctx context.Context, network, address string) (net.Conn, error) {
	nc, err := o.DialWith(ctx, network, address)
	return one(nc, err, errNoConnection)
}

// listenWith calls ListenWith.
func (o *Options) listenWith(ctx context.Context, network, address string) (net.Listener, error) {
	nl, err := o.ListenWith(ctx, network, address)
	return one(nl, err, errNoListener)
}

// one returns a result of the application, or an error if there are both or neither.
func one[T comparable](v T, err, neither error) (T, error) {
	var none T
	if v == none {
		err = cmp.Or(err, neither)
	}
	if err != nil {
		return none, err
	}
	return v, nil
}

// HasSource reports whether the endpoint names an address to connect from.
func (e *Endpoint) HasSource() bool { return e.source != nil }

// RemoteText returns the address of the other end of a connection, or "" if the
// connection does not know it.
func RemoteText(nc net.Conn) string {
	if a := nc.RemoteAddr(); a != nil {
		return a.String()
	}
	return ""
}

// descriptor returns conn's descriptor if it is certain to carry the bytes of the
// connection unchanged. A type of another package may have a method SyscallConn
// only because it embeds a *net.TCPConn, and transform the bytes.
func descriptor(conn net.Conn) (syscall.Conn, bool) {
	switch conn := conn.(type) {
	case *net.TCPConn:
		return conn, true
	case *net.UnixConn:
		return conn, true
	}
	return nil, false
}

// Buffered reports whether a write to the connection is known to complete before
// the other end reads, up to the size of the kernel's buffers.
func (s *Stream) Buffered() bool {
	_, ok := descriptor(s.Conn)
	return ok
}
