package link

import (
	"context"
	"net"
	"syscall"
	"time"
)

// Options configures connections. See sockets.Options.
type Options struct {
	Backlog    int    // maximum number of connections waiting to be accepted; 0: the system's default
	SendBuffer int    // size of the kernel's send buffer in bytes; 0: the system's default
	RecvBuffer int    // size of the kernel's receive buffer in bytes; 0: the system's default
	Device     string // network interface to use; "": any
	IPv6       bool   // the wildcard host includes IPv6
	TOS        int    // type of service of outgoing packets; 0: the system's default

	// As in net.Dialer.
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig

	Proxy         string        // host:port of a SOCKS 5 proxy; "": connect directly
	ProxyUser     string        // "": no authentication
	ProxyPassword func() string // a function, so that formatting does not show the password
	ProxyTimeout  time.Duration // limits the exchange with the proxy

	// Used in place of package net; nil: not used. See sockets.Options.
	DialWith   func(ctx context.Context, network, address string) (net.Conn, error)
	ListenWith func(ctx context.Context, network, address string) (net.Listener, error)
}

// control sets the options that must be set before a socket is bound or connected.
func (o *Options) control(network, _ string, raw syscall.RawConn) error {
	return controlRaw(raw, func(fd uintptr) error {
		if o.TOS != 0 {
			if err := setTOS(network, fd, o.TOS); err != nil {
				return err
			}
		}
		if o.Device != "" {
			return bindToDevice(fd, o.Device)
		}
		return nil
	})
}

// controlSource is like control, for a socket that connects from a given port,
// which an earlier connection may have used.
func (o *Options) controlSource(network, address string, raw syscall.RawConn) error {
	if err := controlRaw(raw, setReuseAddress); err != nil {
		return err
	}
	return o.control(network, address, raw)
}

// controlRaw calls f with the file descriptor of raw.
func controlRaw(raw syscall.RawConn, f func(fd uintptr) error) error {
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(fd) }); err != nil {
		return err
	}
	return failed
}

// tune applies the options to a new network connection. It fails only if the
// connection has ended already, which the first read will report.
func (o *Options) tune(nc net.Conn) {
	type buffered interface {
		SetWriteBuffer(int) error
		SetReadBuffer(int) error
	}
	if b, ok := nc.(buffered); ok {
		if o.SendBuffer > 0 {
			_ = b.SetWriteBuffer(o.SendBuffer)
		}
		if o.RecvBuffer > 0 {
			_ = b.SetReadBuffer(o.RecvBuffer)
		}
	}
	if tc, ok := nc.(*net.TCPConn); ok && o.TOS != 0 {
		// Not on every system does an accepted connection inherit it.
		network := "tcp6"
		if a, ok := nc.LocalAddr().(*net.TCPAddr); ok && a.IP.To4() != nil {
			network = "tcp4"
		}
		if raw, err := tc.SyscallConn(); err == nil {
			_ = controlRaw(raw, func(fd uintptr) error { return setTOS(network, fd, o.TOS) })
		}
	}
}
