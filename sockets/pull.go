package sockets

import (
	"clustermap/internal/engine"
	"clustermap/zmtp"
)

// Pull is a PULL socket (RFC 30). It receives messages from all its peers,
// fair-queued, and sends nothing.
//
// All methods are safe for concurrent use.
type Pull struct{ receiving }

// NewPull returns a new PULL socket. If options are invalid, the error joins an
// [*OptionError] for each of them.
func NewPull(o Options) (*Pull, error) {
	p := &Pull{}
	return made(p, p.init(zmtp.TypePull, o, &engine.Pattern{Sendable: never}))
}

// never is Sendable of a socket that has no send methods.
func never() bool { return false }
