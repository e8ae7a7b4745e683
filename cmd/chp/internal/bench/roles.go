package bench

import (
	"clustermap/cmd/chp/internal/bench/bare"
	"clustermap/cmd/chp/internal/bench/link"
)

// Roles of the processes. Each pipeline has the same three, so that one procedure runs
// all pipelines.
const (
	roleServer    = "server"
	rolePublisher = "publisher"
	roleReplica   = "replica"

	barePrefix = "bare "
	dataPrefix = "data " // the server keeps a log
	pairPrefix = "pair " // there are two servers
)

var roles = map[string]link.Role{
	roleServer:                 server,
	rolePublisher:              publisher,
	roleReplica:                replica,
	barePrefix + roleServer:    bare.Server,
	barePrefix + rolePublisher: bare.Publisher,
	barePrefix + roleReplica:   bare.Replica,

	dataPrefix + roleServer:    server,
	dataPrefix + rolePublisher: publisher,
	dataPrefix + roleReplica:   replica,

	pairPrefix + roleServer:    server,
	pairPrefix + rolePublisher: publisher,
	pairPrefix + roleReplica:   replica,
}
