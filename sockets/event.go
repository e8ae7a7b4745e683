package sockets

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"clustermap/zmtp"
)

// EventKind is the kind of an [Event].
type EventKind uint8

// Event kinds. The name of the corresponding libzmq event is given in
// parentheses.
//
// For each endpoint given to Connect, a socket reports Connected,
// HandshakeSucceeded and Disconnected, or instead ConnectFailed or
// HandshakeFailed; then ConnectRetried, and so on from the start. Over TCP it
// reports ConnectDelayed before each attempt. For each endpoint given to Bind
// it reports Listening or BindFailed; for each peer Accepted, and either
// HandshakeSucceeded and Disconnected or HandshakeFailed; and finally
// ListenerClosed.
//
// Connections that are closed by Close are not reported. Close reports
// ListenerClosed for each bound endpoint and finally MonitorStopped.
//
// Unlike libzmq, which reports DISCONNECTED after HANDSHAKE_FAILED_*, a socket
// reports Disconnected only after HandshakeSucceeded.
const (
	Listening          EventKind = iota + 1 // the endpoint is bound (LISTENING)
	AcceptFailed                            // a connection was not accepted, for example for lack of file descriptors (ACCEPT_FAILED)
	Accepted                                // a connection was accepted (ACCEPTED)
	Connected                               // a connection was made (CONNECTED)
	ConnectFailed                           // an attempt to connect failed (CLOSED)
	ConnectRetried                          // the next attempt will be made after Event.Retry (CONNECT_RETRIED)
	HandshakeSucceeded                      // the connection is established (HANDSHAKE_SUCCEEDED)
	HandshakeFailed                         // the handshake failed; see Event.Failure (HANDSHAKE_FAILED_*)
	PeerIgnored                             // the peer's messages wait or are discarded; see ErrIdentityInUse and ErrPaired
	Disconnected                            // an established connection has ended (DISCONNECTED)
	ListenerClosed                          // the endpoint is no longer bound (CLOSED)
	ConnectDelayed                          // an attempt to connect over TCP begins (CONNECT_DELAYED)
	BindFailed                              // Bind failed and returns the same error (BIND_FAILED)
	CloseFailed                             // an endpoint could not be released completely (CLOSE_FAILED)
	MonitorStopped                          // the socket is closed; this is the last event (MONITOR_STOPPED)
	PeerAdmitted                            // an ignored peer now has its identity, and its messages are received
)

var eventNames = [...]string{
	Listening: "listening", AcceptFailed: "accept failed", Accepted: "accepted", Connected: "connected",
	ConnectFailed: "connect failed", ConnectRetried: "connect retried", HandshakeSucceeded: "handshake succeeded",
	HandshakeFailed: "handshake failed", PeerIgnored: "peer ignored", Disconnected: "disconnected",
	ListenerClosed: "listener closed", ConnectDelayed: "connect delayed", BindFailed: "bind failed",
	CloseFailed: "close failed", MonitorStopped: "monitor stopped", PeerAdmitted: "peer admitted",
}

// String returns the kind in words, such as "handshake failed".
func (k EventKind) String() string {
	if int(k) < len(eventNames) && eventNames[k] != "" {
		return eventNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Event is an event of a socket or of one of its connections; see
// [Options.Monitor].
type Event struct {
	Kind     EventKind
	Endpoint string        // the endpoint: as bound, or as given to Connect
	Remote   string        // network address of the peer, if known
	Peer     *Peer         // the peer, from HandshakeSucceeded to Disconnected
	Err      error         // the cause of a failure or of Disconnected; for ConnectRetried, the refusal that caused the long wait
	Retry    time.Duration // for ConnectRetried, the time until the next attempt
}

// Failure classifies why a handshake failed.
type Failure uint8

// The reasons for which a handshake fails.
const (
	// NoFailure means that the event is not a HandshakeFailed.
	NoFailure Failure = iota
	// FailedNoDetail means any other failure, such as the end of the connection
	// or a timeout (HANDSHAKE_FAILED_NO_DETAIL).
	FailedNoDetail
	// FailedProtocol means that one side violated the protocol, or that the two
	// sides are not compatible (HANDSHAKE_FAILED_PROTOCOL). The error wraps a
	// *zmtp.ProtocolError or a *ZAPError; its Code method returns libzmq's
	// number for it.
	FailedProtocol
	// FailedAuth means that one side rejected the other's credentials
	// (HANDSHAKE_FAILED_AUTH). The error wraps a *zmtp.ProtocolError; its
	// Status method returns the ZAP status code.
	FailedAuth
)

// String returns "none", "no detail", "protocol" or "auth".
func (f Failure) String() string {
	switch f {
	case NoFailure:
		return "none"
	case FailedNoDetail:
		return "no detail"
	case FailedProtocol:
		return "protocol"
	case FailedAuth:
		return "auth"
	}
	return fmt.Sprintf("Failure(%d)", uint8(f))
}

// coder is an error with one of libzmq's codes for protocol errors
// (zmtp.Code*).
type coder interface {
	error
	Code() uint32
}

// Failure returns why a handshake failed. It is NoFailure unless the event is
// HandshakeFailed.
func (e Event) Failure() Failure {
	if e.Kind != HandshakeFailed {
		return NoFailure
	}
	var protocol *zmtp.ProtocolError
	if errors.As(e.Err, &protocol) && protocol.Status() != 0 {
		return FailedAuth
	}
	if coded := coder(nil); errors.As(e.Err, &coded) {
		return FailedProtocol
	}
	return FailedNoDetail
}

// libzmq's numbers of the event kinds (ZMQ_EVENT_*).
var eventNumbers = [...]uint16{
	Connected: 0x0001, ConnectDelayed: 0x0002, ConnectRetried: 0x0004, Listening: 0x0008, BindFailed: 0x0010,
	Accepted: 0x0020, AcceptFailed: 0x0040, ListenerClosed: 0x0080, ConnectFailed: 0x0080, CloseFailed: 0x0100,
	Disconnected: 0x0200, MonitorStopped: 0x0400, HandshakeFailed: 0x0800, HandshakeSucceeded: 0x1000, PeerIgnored: 0, PeerAdmitted: 0,
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
	case ConnectRetried:
		return number, uint32(e.Retry / time.Millisecond)
	case ConnectDelayed:
		return number, uint32(syscall.EINPROGRESS)
	case BindFailed, AcceptFailed, CloseFailed:
		return number, errno(e.Err)
	case HandshakeFailed:
		return e.failureCode()
	}
	return number, 0
}

func (e Event) failureCode() (number uint16, value uint32) {
	switch e.Failure() {
	case FailedAuth:
		var protocol *zmtp.ProtocolError
		errors.As(e.Err, &protocol)
		return numberFailedAuth, uint32(protocol.Status())
	case FailedProtocol:
		var coded coder
		errors.As(e.Err, &coded)
		return numberFailedProtocol, coded.Code()
	}
	return eventNumbers[HandshakeFailed], errno(e.Err)
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
	case errors.Is(err, ErrHandshakeTimeout), errors.As(err, &timeout) && timeout.Timeout():
		return uint32(syscall.ETIMEDOUT)
	}
	return 0
}
