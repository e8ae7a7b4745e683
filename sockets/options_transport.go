package sockets

import (
	"net"
	"runtime"

	"clustermap/internal/engine"
	"clustermap/internal/link"
)

// ReconnectStop is a set of conditions under which a socket gives up an
// endpoint that it was connecting to; see [Options.ReconnectStop]. The values
// can be combined with |. After the socket has given up, the monitor receives
// no further EventConnectRetried event, and Connect can be called again.
type ReconnectStop uint8

const (
	// ReconnectStopOnRefused gives up when the connection is refused because no process
	// listens at the address (ZMQ_RECONNECT_STOP_CONN_REFUSED).
	ReconnectStopOnRefused = ReconnectStop(engine.StopOnRefused)
	// ReconnectStopOnHandshakeFailed gives up when a connection is made but its
	// handshake fails (ZMQ_RECONNECT_STOP_HANDSHAKE_FAILED).
	ReconnectStopOnHandshakeFailed = ReconnectStop(engine.StopOnHandshakeFailed)
	// ReconnectStopAfterDisconnect makes no further attempt after a call of Disconnect.
	// Queued messages are written if a connection exists, and dropped otherwise
	// (ZMQ_RECONNECT_STOP_AFTER_DISCONNECT).
	ReconnectStopAfterDisconnect = ReconnectStop(engine.StopAfterDisconnect)
	// ReconnectStopOnProtocolError gives up when the peer violates the protocol, refuses
	// this socket, or has an incompatible socket type. libzmq always gives up
	// in these cases.
	ReconnectStopOnProtocolError = ReconnectStop(engine.StopOnProtocolError)

	allReconnectStops = ReconnectStopOnRefused | ReconnectStopOnHandshakeFailed | ReconnectStopAfterDisconnect | ReconnectStopOnProtocolError
)

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

// checkTransport validates the options of the transports.
func (o *Options) checkTransport(bad func(field, format string, args ...any)) {
	if o.ReconnectStop&^allReconnectStops != 0 {
		bad("ReconnectStop", "has unknown bits %#x", uint8(o.ReconnectStop&^allReconnectStops))
	}
	switch {
	case o.TOS < 0 || o.TOS > 255:
		bad("TOS", "%d is not between 0 and 255", o.TOS)
	case o.TOS != 0 && !link.HaveTOS:
		bad("TOS", "is not supported on %s", runtime.GOOS)
	}
	if o.KeepAlive > KeepAliveOff {
		bad("KeepAlive", "is neither KeepAliveOn nor KeepAliveOff")
	}
	switch {
	case o.BindToDevice != "" && !link.HaveDevice:
		bad("BindToDevice", "is not supported on %s", runtime.GOOS)
	case len(o.BindToDevice) > maxInterfaceName:
		bad("BindToDevice", "has %d bytes; the maximum is %d", len(o.BindToDevice), maxInterfaceName)
	}
	if err := link.CheckProxy(o.SOCKSProxy); err != nil {
		bad("SOCKSProxy", "%v", err)
	}
	for _, f := range []struct{ name, value string }{{"SOCKSUser", o.SOCKSUser}, {"SOCKSPassword", o.SOCKSPassword}} {
		if len(f.value) > link.MaxProxyField {
			bad(f.name, "has %d bytes; the maximum is %d", len(f.value), link.MaxProxyField)
		}
	}
	if o.SOCKSPassword != "" && o.SOCKSUser == "" {
		bad("SOCKSPassword", "requires SOCKSUser")
	}
}

// link returns the options for making connections.
func (o *Options) link() link.Options {
	l := link.Options{
		Backlog: o.Backlog, SendBuffer: o.SendBuffer, RecvBuffer: o.RecvBuffer,
		Device: o.BindToDevice, IPv6: o.IPv6, TOS: o.TOS,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: o.KeepAliveIdle, Interval: o.KeepAliveInterval, Count: o.KeepAliveCount},
		DialWith:        o.Dial, ListenWith: o.Listen,
		Proxy: o.SOCKSProxy, ProxyUser: o.SOCKSUser, ProxyPassword: func() string { return o.SOCKSPassword }, ProxyTimeout: o.HandshakeTimeout,
	}
	if o.KeepAlive == KeepAliveOff {
		l.KeepAlive, l.KeepAliveConfig = -1, net.KeepAliveConfig{} // a negative interval turns it off
	}
	return l
}
