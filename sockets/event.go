package sockets

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"clustermap/internal/engine"
	"clustermap/internal/text"
	"clustermap/zmtp"
)

// EventKind is the kind of an [Event].
type EventKind uint8

// Event kinds. The name of the corresponding libzmq event is given in
// parentheses.
//
// For each endpoint given to Connect, a socket reports EventConnected,
// EventHandshakeSucceeded and EventDisconnected, or instead EventConnectFailed or
// EventHandshakeFailed; then EventConnectRetried, and so on from the start, or
// EventAbandoned if it does not connect again. Over TCP it reports
// EventConnectDelayed before each attempt. For each endpoint given to Bind
// it reports EventListening or EventBindFailed; for each peer EventAccepted, and either
// EventHandshakeSucceeded and EventDisconnected or EventHandshakeFailed; and finally
// EventListenerClosed.
//
// Connections that are closed by Close are not reported. Close reports
// EventListenerClosed for each bound endpoint and finally EventMonitorStopped.
//
// Unlike libzmq, which reports DISCONNECTED after HANDSHAKE_FAILED_*, a socket
// reports EventDisconnected only after EventHandshakeSucceeded.
const (
	EventListening          = EventKind(engine.Listening)          // the endpoint is bound (LISTENING)
	EventAcceptFailed       = EventKind(engine.AcceptFailed)       // a connection was not accepted, for example for lack of file descriptors (ACCEPT_FAILED)
	EventAccepted           = EventKind(engine.Accepted)           // a connection was accepted (ACCEPTED)
	EventConnected          = EventKind(engine.Connected)          // a connection was made (CONNECTED)
	EventConnectFailed      = EventKind(engine.ConnectFailed)      // an attempt to connect failed (CLOSED)
	EventConnectRetried     = EventKind(engine.ConnectRetried)     // the next attempt will be made after Event.Retry (CONNECT_RETRIED)
	EventHandshakeSucceeded = EventKind(engine.HandshakeSucceeded) // the connection is established (HANDSHAKE_SUCCEEDED)
	EventHandshakeFailed    = EventKind(engine.HandshakeFailed)    // the handshake failed; see Event.Failure (HANDSHAKE_FAILED_*)
	EventPeerIgnored        = EventKind(engine.PeerIgnored)        // the peer's messages wait or are discarded; see ErrIdentityInUse and ErrPaired
	EventDisconnected       = EventKind(engine.Disconnected)       // an established connection has ended (DISCONNECTED)
	EventListenerClosed     = EventKind(engine.ListenerClosed)     // the endpoint is no longer bound (CLOSED)
	EventConnectDelayed     = EventKind(engine.ConnectDelayed)     // an attempt to connect over TCP begins (CONNECT_DELAYED)
	EventBindFailed         = EventKind(engine.BindFailed)         // Bind failed and returns the same error (BIND_FAILED)
	EventCloseFailed        = EventKind(engine.CloseFailed)        // an endpoint could not be released completely (CLOSE_FAILED)
	EventMonitorStopped     = EventKind(engine.MonitorStopped)     // the socket is closed; this is the last event (MONITOR_STOPPED)
	EventPeerAdmitted       = EventKind(engine.PeerAdmitted)       // an ignored peer now has its identity, and its messages are received
	EventAbandoned          = EventKind(engine.Abandoned)          // the endpoint was given up; see Connect for when, and call Connect to try again
)

var eventNames = [...]string{
	EventListening: "listening", EventAcceptFailed: "accept failed", EventAccepted: "accepted", EventConnected: "connected",
	EventConnectFailed: "connect failed", EventConnectRetried: "connect retried", EventHandshakeSucceeded: "handshake succeeded",
	EventHandshakeFailed: "handshake failed", EventPeerIgnored: "peer ignored", EventDisconnected: "disconnected",
	EventListenerClosed: "listener closed", EventConnectDelayed: "connect delayed", EventBindFailed: "bind failed",
	EventCloseFailed: "close failed", EventMonitorStopped: "monitor stopped", EventPeerAdmitted: "peer admitted",
	EventAbandoned: "abandoned",
}

// String returns the kind in words, such as "handshake failed".
func (k EventKind) String() string {
	return text.Of(k, "EventKind", eventNames[:]...)
}

// MarshalText returns the text of String.
func (k EventKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Event is an event of a socket or of one of its connections; see
// [Options.Monitor].
type Event struct {
	Kind     EventKind
	Endpoint string        // the endpoint: as bound, or as given to Connect
	Remote   string        // network address of the peer, if known
	Peer     *Peer         // the peer, from EventHandshakeSucceeded to EventDisconnected
	Err      error         `json:",omitempty"` // the cause of a failure, of EventDisconnected or of EventAbandoned; for EventConnectRetried, the refusal that caused the long wait, or ErrServerKey if another key is tried at once
	Retry    time.Duration // for EventConnectRetried, the time until the next attempt
}

// MarshalJSON implements json.Marshaler: it writes Err as its text.
func (e Event) MarshalJSON() ([]byte, error) {
	type fields Event // without this method
	e.Err = text.Error(e.Err)
	return json.Marshal(fields(e))
}

// Failure classifies why a handshake failed.
type Failure uint8

// The reasons for which a handshake fails.
const (
	// FailureNone means that the event is not a EventHandshakeFailed.
	FailureNone Failure = iota
	// FailureNoDetail means any other failure, such as the end of the connection
	// or a timeout (HANDSHAKE_FAILED_NO_DETAIL).
	FailureNoDetail
	// FailureProtocol means that one side violated the protocol, or that the two
	// sides are not compatible (HANDSHAKE_FAILED_PROTOCOL). The error wraps a
	// *zmtp.ProtocolError or a *ZAPError; its Code method returns libzmq's
	// number for it.
	FailureProtocol
	// FailureAuth means that one side rejected the other's credentials
	// (HANDSHAKE_FAILED_AUTH). The error wraps a *zmtp.ProtocolError; its
	// Status method returns the ZAP status code.
	FailureAuth
)

// String returns "none", "no detail", "protocol" or "auth".
func (f Failure) String() string {
	return text.Of(f, "Failure", "none", "no detail", "protocol", "auth")
}

// MarshalText returns the text of String.
func (f Failure) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// coder is an error with one of libzmq's codes for protocol errors
// (zmtp.Code*).
type coder interface {
	error
	Code() uint32
}

// Failure returns why a handshake failed. It is FailureNone unless the event is
// EventHandshakeFailed.
func (e Event) Failure() Failure {
	failure, _, _ := e.failure()
	return failure
}

// failure returns why a handshake failed, and the event's number and value.
func (e Event) failure() (f Failure, number uint16, value uint32) {
	if e.Kind != EventHandshakeFailed {
		return FailureNone, 0, 0
	}
	if p, ok := errors.AsType[*zmtp.ProtocolError](e.Err); ok && p.Status() != 0 {
		return FailureAuth, numberFailedAuth, uint32(p.Status())
	}
	if coded, ok := errors.AsType[coder](e.Err); ok {
		return FailureProtocol, numberFailedProtocol, coded.Code()
	}
	return FailureNoDetail, eventNumbers[EventHandshakeFailed], errno(e.Err)
}

// libzmq's numbers of the event kinds (ZMQ_EVENT_*).
var eventNumbers = [...]uint16{
	EventConnected: 0x0001, EventConnectDelayed: 0x0002, EventConnectRetried: 0x0004, EventListening: 0x0008, EventBindFailed: 0x0010,
	EventAccepted: 0x0020, EventAcceptFailed: 0x0040, EventListenerClosed: 0x0080, EventConnectFailed: 0x0080, EventCloseFailed: 0x0100,
	EventDisconnected: 0x0200, EventMonitorStopped: 0x0400, EventHandshakeFailed: 0x0800, EventHandshakeSucceeded: 0x1000, EventPeerIgnored: 0, EventPeerAdmitted: 0,
	EventAbandoned: 0,
}

const (
	numberFailedProtocol = 0x2000
	numberFailedAuth     = 0x4000
)

// Code returns the event's number and value as libzmq's monitor would report
// them (ZMQ_EVENT_*). The number is 0 if libzmq has no such event.
//
// The value is the wait in milliseconds for CONNECT_RETRIED, the protocol error
// code for HANDSHAKE_FAILED_PROTOCOL, the ZAP status code for
// HANDSHAKE_FAILED_AUTH, and the system's error number, or 0 if there is none,
// for other failures. It is 0 for events whose value in libzmq is a file
// descriptor.
func (e Event) Code() (number uint16, value uint32) {
	if int(e.Kind) >= len(eventNumbers) {
		return 0, 0
	}
	number = eventNumbers[e.Kind]
	switch e.Kind {
	case EventConnectRetried:
		return number, uint32(e.Retry / time.Millisecond)
	case EventConnectDelayed:
		return number, uint32(syscall.EINPROGRESS)
	case EventBindFailed, EventAcceptFailed, EventCloseFailed:
		return number, errno(e.Err)
	case EventHandshakeFailed:
		_, number, value = e.failure()
		return number, value
	}
	return number, 0
}

// errno returns the system's error number of err, or 0 if there is none.
func errno(err error) uint32 {
	var number syscall.Errno
	var timeout net.Error
	switch {
	case errors.As(err, &number):
		return uint32(number)
	case errors.Is(err, io.EOF):
		return uint32(syscall.EPIPE) // the peer has gone
	case errors.Is(err, ErrNoAuthenticator):
		return uint32(syscall.EFAULT)
	case errors.Is(err, ErrHandshakeTimeout), errors.As(err, &timeout) && timeout.Timeout():
		return uint32(syscall.ETIMEDOUT)
	}
	return 0
}
