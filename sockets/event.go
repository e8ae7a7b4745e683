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

// EventKind says what happened to a connection.
type EventKind uint8

// Kinds of events, with the name of libzmq's event where there is one.
//
// A connecting socket tells of ConnectDelayed, Connected, HandshakeSucceeded and
// Disconnected, or of ConnectFailed or HandshakeFailed in their place; then of
// ConnectRetried, and so on from the beginning. A binding socket tells of
// Listening or BindFailed, for each peer of Accepted, HandshakeSucceeded and
// Disconnected, or HandshakeFailed; and of ListenerClosed.
//
// When Close ends a connection, the monitor is not told. Close reports
// ListenerClosed for each bound endpoint, and MonitorStopped as the last event.
//
// Unlike libzmq, which follows up HANDSHAKE_FAILED_* by DISCONNECTED,
// Disconnected comes after HandshakeSucceeded only.
const (
	Listening          EventKind = iota + 1 // bound (LISTENING)
	AcceptFailed                            // accept failed, for example without free descriptors (ACCEPT_FAILED)
	Accepted                                // a peer connected (ACCEPTED)
	Connected                               // connected to a peer (CONNECTED)
	ConnectFailed                           // dialling failed (CLOSED)
	ConnectRetried                          // the next attempt comes after Event.Retry (CONNECT_RETRIED)
	HandshakeSucceeded                      // messages may flow (HANDSHAKE_SUCCEEDED)
	HandshakeFailed                         // the peer was refused, or refused us; see Event.Failure (HANDSHAKE_FAILED_*)
	PeerIgnored                             // the peer's identity is in use, and its messages wait; see ErrIdentityInUse
	Disconnected                            // an established connection ended (DISCONNECTED)
	ListenerClosed                          // unbound (CLOSED)
	ConnectDelayed                          // dialling goes on in the background (CONNECT_DELAYED)
	BindFailed                              // Bind returns the error too (BIND_FAILED)
	CloseFailed                             // an endpoint could not be given back as it should (CLOSE_FAILED)
	MonitorStopped                          // the socket is closed: the last event there is (MONITOR_STOPPED)
	PeerAdmitted                            // a peer that was ignored has its identity now, and its messages are received
)

var eventNames = [...]string{
	Listening: "listening", AcceptFailed: "accept failed", Accepted: "accepted", Connected: "connected",
	ConnectFailed: "connect failed", ConnectRetried: "connect retried", HandshakeSucceeded: "handshake succeeded",
	HandshakeFailed: "handshake failed", PeerIgnored: "peer ignored", Disconnected: "disconnected",
	ListenerClosed: "listener closed", ConnectDelayed: "connect delayed", BindFailed: "bind failed",
	CloseFailed: "close failed", MonitorStopped: "monitor stopped", PeerAdmitted: "peer admitted",
}

func (k EventKind) String() string {
	if int(k) < len(eventNames) && eventNames[k] != "" {
		return eventNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Event is one thing that happened to a connection, for [Options.Monitor].
type Event struct {
	Kind     EventKind
	Endpoint string        // the endpoint bound or connected, resolved
	Remote   string        // network address of the peer, if known
	Peer     *Peer         // from HandshakeSucceeded to Disconnected
	Err      error         // why, for failures and Disconnected
	Retry    time.Duration // ConnectRetried: wait before the next attempt; Err tells why, if it is the longest wait
}

// Failure is of what sort a failed handshake is.
type Failure uint8

const (
	// NoFailure: the event tells of none.
	NoFailure Failure = iota
	// FailedNoDetail: the connection ended, or its time was over
	// (HANDSHAKE_FAILED_NO_DETAIL).
	FailedNoDetail
	// FailedProtocol: one side broke the protocol, or the two do not fit each
	// other (HANDSHAKE_FAILED_PROTOCOL). The error is, or wraps, a
	// *zmtp.ProtocolError, whose Code is libzmq's number for it.
	FailedProtocol
	// FailedAuth: one side denied the other's credentials
	// (HANDSHAKE_FAILED_AUTH). The error wraps a *zmtp.ProtocolError, whose
	// Status is the code of the denial.
	FailedAuth
)

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

// coder is an error that has one of libzmq's codes for protocol errors
// (zmtp.Code*).
type coder interface {
	error
	Code() uint32
}

// Failure returns of what sort a HandshakeFailed is; for other events it is
// NoFailure.
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

// libzmq's numbers for the kinds (ZMQ_EVENT_*).
var eventNumbers = [...]uint16{
	Connected: 0x0001, ConnectDelayed: 0x0002, ConnectRetried: 0x0004, Listening: 0x0008, BindFailed: 0x0010,
	Accepted: 0x0020, AcceptFailed: 0x0040, ListenerClosed: 0x0080, ConnectFailed: 0x0080, CloseFailed: 0x0100,
	Disconnected: 0x0200, MonitorStopped: 0x0400, HandshakeFailed: 0x0800, HandshakeSucceeded: 0x1000, PeerIgnored: 0, PeerAdmitted: 0,
}

const (
	numberFailedProtocol = 0x2000
	numberFailedAuth     = 0x4000
)

// Code returns the event's number and value as libzmq's monitor has them
// (ZMQ_EVENT_*), for programs that keep statistics by these. The value is the
// wait in milliseconds for CONNECT_RETRIED; the code of the fault for
// HANDSHAKE_FAILED_PROTOCOL and the status of the denial for _AUTH; the system's
// number of the error for other failures, as far as there is one. Where libzmq
// has a descriptor it is 0. The number is 0 for kinds that libzmq does not have.
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

// errno returns the system's number of an error, 0 if it has none.
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
