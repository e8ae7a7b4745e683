package sockets

import (
	"fmt"
	"time"
)

// EventKind says what happened to a connection.
type EventKind uint8

// Kinds of events, with the name of libzmq's event where there is one.
const (
	Listening          EventKind = iota + 1 // bound (LISTENING)
	AcceptFailed                            // accept failed, for example without free descriptors (ACCEPT_FAILED)
	Accepted                                // a peer connected (ACCEPTED)
	Connected                               // connected to a peer (CONNECTED)
	ConnectFailed                           // dialling failed (CLOSED)
	ConnectRetried                          // the next attempt comes after Event.Retry (CONNECT_RETRIED)
	HandshakeSucceeded                      // messages may flow (HANDSHAKE_SUCCEEDED)
	HandshakeFailed                         // the peer was refused (HANDSHAKE_FAILED_*)
	PeerIgnored                             // the peer's identity is taken; see ErrIdentityInUse
	Disconnected                            // an established connection ended (DISCONNECTED)
	ListenerClosed                          // unbound (CLOSED)
)

var eventNames = [...]string{
	Listening: "listening", AcceptFailed: "accept failed", Accepted: "accepted", Connected: "connected",
	ConnectFailed: "connect failed", ConnectRetried: "connect retried", HandshakeSucceeded: "handshake succeeded",
	HandshakeFailed: "handshake failed", PeerIgnored: "peer ignored", Disconnected: "disconnected",
	ListenerClosed: "listener closed",
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
	Retry    time.Duration // ConnectRetried: wait before the next attempt
}
