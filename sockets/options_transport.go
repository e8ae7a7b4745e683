package sockets

import (
	"fmt"
	"net"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// ReconnectStop says when a connection that was made by Connect is given up
// instead of being dialled again; the values can be combined. A connection that
// was given up is reported as its end and no further attempt, and can be
// connected anew.
type ReconnectStop uint8

const (
	// StopOnRefused gives up when nobody listens at the address
	// (ZMQ_RECONNECT_STOP_CONN_REFUSED).
	StopOnRefused ReconnectStop = 1 << iota
	// StopOnHandshakeFailed gives up when a connection came about, but not
	// its handshake (ZMQ_RECONNECT_STOP_HANDSHAKE_FAILED).
	StopOnHandshakeFailed
	// StopAfterDisconnect makes no further attempt once Disconnect was
	// called: messages queued are written if there is a connection to write
	// them to, and dropped if there is none
	// (ZMQ_RECONNECT_STOP_AFTER_DISCONNECT).
	StopAfterDisconnect
	// StopOnProtocolError gives up when the peer breaks the protocol, refuses
	// this socket, or is of a type that it cannot talk to. libzmq always gives up
	// then.
	StopOnProtocolError

	allReconnectStops = StopOnRefused | StopOnHandshakeFailed | StopAfterDisconnect | StopOnProtocolError
)

// DefaultReconnectIntervalMax is the most that Connect waits by default before it
// dials a peer again that has refused it; see [Options.ReconnectIntervalMax].
const DefaultReconnectIntervalMax = 10 * time.Second

// KeepAlive says whether TCP looks after idle connections.
type KeepAlive uint8

const (
	// KeepAliveOn has the system probe idle connections, so that one whose
	// other end vanished ends. It is the default.
	KeepAliveOn KeepAlive = iota
	// KeepAliveOff does not.
	KeepAliveOff
)

// maxInterfaceName is the longest name of a network interface on Linux.
const maxInterfaceName = 15

// checkTransport validates the options of transports.
func (o *Options) checkTransport(bad func(field, format string, args ...any)) {
	if o.ConnectTimeout < 0 {
		bad("ConnectTimeout", "must not be negative")
	}
	if o.ReconnectStop&^allReconnectStops != 0 {
		bad("ReconnectStop", "has bits that mean nothing: %#x", uint8(o.ReconnectStop&^allReconnectStops))
	}
	if o.Backlog < 0 {
		bad("Backlog", "must not be negative")
	}
	switch {
	case o.TOS < 0 || o.TOS > 255:
		bad("TOS", "%d is not from 0 to 255", o.TOS)
	case o.TOS != 0 && !haveTOS:
		bad("TOS", "cannot be set on %s", runtime.GOOS)
	}
	if o.KeepAlive > KeepAliveOff {
		bad("KeepAlive", "is neither KeepAliveOn nor KeepAliveOff")
	}
	switch {
	case o.BindToDevice != "" && !haveBindToDevice:
		bad("BindToDevice", "cannot be set on %s", runtime.GOOS)
	case len(o.BindToDevice) > maxInterfaceName:
		bad("BindToDevice", "has %d bytes; at most %d are possible", len(o.BindToDevice), maxInterfaceName)
	}
	if err := checkProxy(o.SOCKSProxy); err != nil {
		bad("SOCKSProxy", "%v", err)
	}
	for _, f := range []struct{ name, value string }{{"SOCKSUser", o.SOCKSUser}, {"SOCKSPassword", o.SOCKSPassword}} {
		if len(f.value) > maxSOCKSField {
			bad(f.name, "has %d bytes; at most %d are possible", len(f.value), maxSOCKSField)
		}
	}
	if o.SOCKSPassword != "" && o.SOCKSUser == "" {
		bad("SOCKSPassword", "needs a SOCKSUser")
	}
}

// checkProxy reports what is wrong with the address of a proxy.
func checkProxy(address string) error {
	if address == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not host:port", address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return fmt.Errorf("%q needs a host and a port from 1 to 65535", address)
	}
	return nil
}

// keepAlive is what the options say, as package net takes it: off is a negative
// interval.
func (s *socket) keepAlive() (time.Duration, net.KeepAliveConfig) {
	o := &s.opts
	if o.KeepAlive == KeepAliveOff {
		return -1, net.KeepAliveConfig{}
	}
	return 0, net.KeepAliveConfig{Enable: true, Idle: o.KeepAliveIdle, Interval: o.KeepAliveInterval, Count: o.KeepAliveCount}
}

// controlTCP sets what has to be set before a socket is bound or connected.
func (s *socket) controlTCP(network, _ string, raw syscall.RawConn) error {
	return controlRaw(raw, func(fd uintptr) error {
		if s.opts.TOS != 0 {
			if err := setTOS(network, fd, s.opts.TOS); err != nil {
				return err
			}
		}
		if s.opts.BindToDevice != "" {
			return bindToDevice(fd, s.opts.BindToDevice)
		}
		return nil
	})
}

// controlSource does so for a socket that connects from a given port, which an
// earlier connection may have used.
func (s *socket) controlSource(network, address string, raw syscall.RawConn) error {
	if err := controlRaw(raw, setReuseAddress); err != nil {
		return err
	}
	return s.controlTCP(network, address, raw)
}

// controlRaw calls f with a descriptor.
func controlRaw(raw syscall.RawConn, f func(fd uintptr) error) error {
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(fd) }); err != nil {
		return err
	}
	return failed
}

// tune sets what the options ask of a new network connection. It fails only on
// a connection that is already gone, which the first read will tell.
func (s *socket) tune(nc net.Conn) {
	type buffered interface {
		SetWriteBuffer(int) error
		SetReadBuffer(int) error
	}
	if b, ok := nc.(buffered); ok {
		if s.opts.SendBuffer > 0 {
			_ = b.SetWriteBuffer(s.opts.SendBuffer)
		}
		if s.opts.RecvBuffer > 0 {
			_ = b.SetReadBuffer(s.opts.RecvBuffer)
		}
	}
	if tc, ok := nc.(*net.TCPConn); ok && s.opts.TOS != 0 {
		// Not every system hands it down from the listening socket.
		network := "tcp6"
		if a, ok := nc.LocalAddr().(*net.TCPAddr); ok && a.IP.To4() != nil {
			network = "tcp4"
		}
		if raw, err := tc.SyscallConn(); err == nil {
			_ = controlRaw(raw, func(fd uintptr) error { return setTOS(network, fd, s.opts.TOS) })
		}
	}
}

// localSendBuffer is the most that the kernel's buffer for sending to a peer on
// the same machine may grow to. There is no way to fill, which growing is for: it
// only lets the sender be megabytes ahead, and what it sends is no longer in the
// processor's cache when the peer reads it. With half a megabyte messages of
// 64 KiB are faster by a fifth, those of 1 MiB by a third.
const localSendBuffer = 512 << 10

// growthLook is how many bytes go out between two looks at how large it is.
const growthLook = 4 << 20

// isLocal says that a connection's other end is on the same machine, and that it
// goes by way of TCP: the buffers of Unix domain sockets do not grow.
func isLocal(near, far net.Addr) bool {
	n, ok1 := near.(*net.TCPAddr)
	f, ok2 := far.(*net.TCPAddr)
	return ok1 && ok2 && (f.IP.IsLoopback() || f.IP.Equal(n.IP))
}

// connectLimit is when an attempt to connect that begins now has to be done.
func (s *socket) connectLimit() time.Time {
	if s.opts.ConnectTimeout == 0 {
		return time.Time{}
	}
	return time.Now().Add(s.opts.ConnectTimeout)
}
