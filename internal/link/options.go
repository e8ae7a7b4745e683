package link

import (
	"net"
	"syscall"
	"time"
)

// Options are how connections are made. They are those of package sockets.
type Options struct {
	Backlog    int    // connections that wait to be accepted; 0: the system's choice
	SendBuffer int    // the system's buffer in bytes; 0: the system's choice
	RecvBuffer int    // the same for what is received
	Device     string // network interface to use; "": any
	IPv6       bool   // the wildcard host stands for IPv6 as well
	TOS        int    // type of service of outgoing packets; 0: the system's choice

	// As in net.Dialer.
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig

	Proxy         string        // host:port of a SOCKS 5 proxy to connect by; "": none
	ProxyUser     string        // "": none
	ProxyPassword func() string // a function, so that printing does not show it
	ProxyTimeout  time.Duration // for the exchange with the proxy, if the context has no deadline
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

// controlSource is control for a socket that connects from a given port, which an
// earlier connection may have used.
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
		// Not every system hands it down from the listening socket.
		network := "tcp6"
		if a, ok := nc.LocalAddr().(*net.TCPAddr); ok && a.IP.To4() != nil {
			network = "tcp4"
		}
		if raw, err := tc.SyscallConn(); err == nil {
			_ = controlRaw(raw, func(fd uintptr) error { return setTOS(network, fd, o.TOS) })
		}
	}
}
