package engine

import (
	"fmt"
	"time"
)

// Event is an event of a socket or of one of its connections; see sockets.Event.
type Event struct {
	Kind             EventKind
	Endpoint, Remote string
	Peer             *Peer
	Err              error
	Retry            time.Duration
}

// EventKind is the kind of an Event; package sockets says what each means.
type EventKind uint8

const (
	Listening EventKind = iota + 1
	AcceptFailed
	Accepted
	Connected
	ConnectFailed
	ConnectRetried
	HandshakeSucceeded
	HandshakeFailed
	PeerIgnored
	Disconnected
	ListenerClosed
	ConnectDelayed
	BindFailed
	CloseFailed
	MonitorStopped
	PeerAdmitted
	Abandoned
)

// PeerError is the reason for which one connection has ended, such as malformed
// data, a failed handshake or a timeout. It is reported to the monitor in
// Event.Err. Other connections are not affected.
type PeerError struct {
	Remote string // network address of the peer
	Err    error  // a *zmtp.ProtocolError, an error of this package, or a network error
}

func (e *PeerError) Error() string { return fmt.Sprintf("sockets: peer %s: %v", e.Remote, e.Err) }

// Unwrap returns Err.
func (e *PeerError) Unwrap() error { return e.Err }

// MarshalText returns the text of Error.
func (e *PeerError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }
