package engine

import (
	"errors"

	"clustermap/internal/connection"
)

// Errors of sockets, which has their documentation.
var (
	ErrServerKey        = errors.New("sockets: the server cannot read HELLO, as if it had another key")
	ErrIdentityInUse    = errors.New("sockets: identity is in use by another peer")
	ErrHandedOver       = errors.New("sockets: identity was handed over to another peer")
	ErrHeartbeatTimeout = connection.ErrHeartbeatTimeout
	ErrTemporary        = errors.New("sockets: authentication temporarily unavailable")
	ErrNotBound         = errors.New("sockets: endpoint is not bound")
	ErrNotConnected     = errors.New("sockets: endpoint is not connected")
)
