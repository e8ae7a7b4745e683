package sockets

import (
	"fmt"
	"net"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// ReconnectStop is a set of conditions under which a socket gives up an
// endpoint that it was connecting to; see [Options.ReconnectStop]. The values
// can be combined with |. After the socket has given up, the monitor receives
// no further ConnectRetried event, and Connect can be called again.
type ReconnectStop uint8

const (
	// StopOnRefused gives up when the connection is refused because nobody
	// listens at the address (ZMQ_RECONNECT_STOP_CONN_REFUSED).
	StopOnRefused ReconnectStop = 1 << iota
	// StopOnHandshakeFailed gives up when a connection is made but its
	// handshake fails (ZMQ_RECONNECT_STOP_HANDSHAKE_FAILED).
	StopOnHandshakeFailed
	// StopAfterDisconnect makes no further attempt after a call of Disconnect.
	// Queued messages are written if a connection exists, and dropped otherwise
	// (ZMQ_RECONNECT_STOP_AFTER_DISCONNECT).
	StopAfterDisconnect
	// StopOnProtocolError gives up when the peer violates the protocol, refuses
	// this socket, or has an incompatible socket type. libzmq always gives up
	// in these cases.
	StopOnProtocolError

	allReconnectStops = StopOnRefused | StopOnHandshakeFailed | StopAfterDisconnect | StopOnProtocolError
)

// DefaultReconnectIntervalMax is the longest time that a socket waits by
// default before it connects again to a peer that has refused it; see
// [Options.ReconnectIntervalMax].
const DefaultReconnectIntervalMax = 10 * time.Second

// KeepAlive specifies whether TCP probes idle connections; see
// [Options.KeepAlive].
type KeepAlive uint8

const (
	// KeepAliveOn makes the operating system probe idle connections, so that a
	// connection is closed when the other end has vanished. It is the default.
	KeepAliveOn KeepAlive = iota
	// KeepAliveOff turns the probes off.
	KeepAliveOff
)

// maxInterfaceName is the longest name of a network interface on Linux.
const maxInterfaceName = 15

// checkTransport validates the options of the transports.
func (o *Options) checkTransport(bad func(field, format string, args ...any)) {
	if o.ConnectTimeout < 0 {
		bad("ConnectTimeout", "must not be negative")
	}
	if o.ReconnectStop&^allReconnectStops != 0 {
		bad("ReconnectStop", "has unknown bits %#x", uint8(o.ReconnectStop&^allReconnectStops))
	}
	if o.Backlog < 0 {
		bad("Backlog", "must not be negative")
	}
	switch {
	case o.TOS < 0 || o.TOS > 255:
		bad("TOS", "%d is not between 0 and 255", o.TOS)
	case o.TOS != 0 && !haveTOS:
		bad("TOS", "is not supported on %s", runtime.GOOS)
	}
	if o.KeepAlive > KeepAliveOff {
		bad("KeepAlive", "is neither KeepAliveOn nor KeepAliveOff")
	}
	switch {
	case o.BindToDevice != "" && !haveBindToDevice:
		bad("BindToDevice", "is not supported on %s", runtime.GOOS)
	case len(o.BindToDevice) > maxInterfaceName:
		bad("BindToDevice", "has %d bytes; the maximum is %d", len(o.BindToDevice), maxInterfaceName)
	}
	if err := checkProxy(o.SOCKSProxy); err != nil {
		bad("SOCKSProxy", "%v", err)
	}
	for _, f := range []struct{ name, value string }{{"SOCKSUser", o.SOCKSUser}, {"SOCKSPassword", o.SOCKSPassword}} {
		if len(f.value) > maxSOCKSField {
			bad(f.name, "has %d bytes; the maximum is %d", len(f.value), maxSOCKSField)
		}
	}
	if o.SOCKSPassword != "" && o.SOCKSUser == "" {
		bad("SOCKSPassword", "requires SOCKSUser")
	}
}

// checkProxy reports what is wrong with the address of a SOCKS proxy.
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

// keepAlive converts the options to the form that package net takes: a negative
// interval turns keep-alive off.
func (s *socket) keepAlive() (time.Duration, net.KeepAliveConfig) {
	o := &s.opts
	if o.KeepAlive == KeepAliveOff {
		return -1, net.KeepAliveConfig{}
	}
	return 0, net.KeepAliveConfig{Enable: true, Idle: o.KeepAliveIdle, Interval: o.KeepAliveInterval, Count: o.KeepAliveCount}
}

// controlTCP sets the options that must be set before a socket is bound or
// connected.
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

// controlSource is controlTCP for a socket that connects from a given port,
// which an earlier connection may have used.
func (s *socket) controlSource(network, address string, raw syscall.RawConn) error {
	if err := controlRaw(raw, setReuseAddress); err != nil {
		return err
	}
	return s.controlTCP(network, address, raw)
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
		// Not every system copies it from the listening socket.
		network := "tcp6"
		if a, ok := nc.LocalAddr().(*net.TCPAddr); ok && a.IP.To4() != nil {
			network = "tcp4"
		}
		if raw, err := tc.SyscallConn(); err == nil {
			_ = controlRaw(raw, func(fd uintptr) error { return setTOS(network, fd, s.opts.TOS) })
		}
	}
}

// localSendBuffer is the maximum size to which the operating system's send
// buffer for a peer on the same machine may grow. A larger buffer serves to
// fill a long network path, which does not exist here: it would only let the
// sender run megabytes ahead, and the bytes would have left the processor's
// cache by the time the peer reads them. With half a megabyte, messages of 64
// KiB are a fifth faster and messages of 1 MiB a third.
const localSendBuffer = 512 << 10

// growthLook is how many bytes are written between two checks of the buffer's
// size.
const growthLook = 4 << 20

// isLocal reports whether a connection uses TCP and its other end is on the
// same machine. The buffers of Unix domain sockets do not grow.
func isLocal(near, far net.Addr) bool {
	n, ok1 := near.(*net.TCPAddr)
	f, ok2 := far.(*net.TCPAddr)
	return ok1 && ok2 && (f.IP.IsLoopback() || f.IP.Equal(n.IP))
}

// connectLimit returns the time by which an attempt to connect that starts now
// must be complete, or zero if there is no limit.
func (s *socket) connectLimit() time.Time {
	if s.opts.ConnectTimeout == 0 {
		return time.Time{}
	}
	return time.Now().Add(s.opts.ConnectTimeout)
}
