// Package bounds limits what the peers of a socket may occupy together: connections,
// handshakes and descriptors (Admission), and memory for messages that have not arrived as a
// whole (Incomplete). At a bound, the connection gives way that is least likely to be of use.
package bounds

import (
	"errors"
	"time"
)

// Errors for which connections end; package sockets has their documentation.
var (
	ErrHandshakeTimeout   = errors.New("sockets: handshake timeout")
	ErrTooManyConnections = errors.New("sockets: too many connections")
	ErrStalled            = errors.New("sockets: peer stalled in a large message while other connections needed memory")
)

// Conn is a connection as the bounds know it.
type Conn interface {
	// Close makes the connection end, and does not wait for that.
	Close(reason error)
	// Local reports whether the peer is on this machine.
	Local() bool
	// Gone returns a channel that is closed when the connection must end.
	Gone() <-chan struct{}
	// Heard and Listening mark the beginning and the end of the time in which the
	// connection is not read although the peer may have sent something. Dealing reports
	// whether it is such a time.
	Heard() error
	Listening()
	Dealing() bool
}

// Tuning has values that only tests change.
type Tuning struct {
	HandshakeGrace time.Duration // handshakeGrace
	OperatorTurn   time.Duration // operatorTurn
	StallPatience  time.Duration // stallPatience
	MaxAnnounced   int           // maxAnnounced
}

// DefaultTuning returns the values that are in use.
func DefaultTuning() Tuning {
	return Tuning{handshakeGrace, operatorTurn, stallPatience, maxAnnounced}
}
