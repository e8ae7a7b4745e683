package bench

import (
	"clustermap/cmd/chp/internal/bench/bare"
	"clustermap/cmd/chp/internal/bench/link"
)

// The roles of a benchmark's processes. Each pipeline has the same three, so
// that one procedure runs both.
const (
	roleServer    = "server"
	rolePublisher = "publisher"
	roleReplica   = "replica"

	barePrefix = "bare "
)

var roles = map[string]link.Role{
	roleServer:                 server,
	rolePublisher:              publisher,
	roleReplica:                replica,
	barePrefix + roleServer:    bare.Server,
	barePrefix + rolePublisher: bare.Publisher,
	barePrefix + roleReplica:   bare.Replica,
}
