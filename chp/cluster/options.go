package cluster

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"clustermap/chp/commit"
	"clustermap/internal/option"
)

// Options are the settings of a node.
type Options struct {
	// Dir is the directory with the node's log, which is created if it does not exist. One that has the
	// log of a server without a cluster becomes that of a cluster with a single node.
	Dir string
	// Node is the id of this node, not 0. An id is never used for another node, also when the
	// first one was removed.
	Node uint64
	// Cluster is the id of the cluster, the same for all its nodes.
	Cluster ID
	// Peers has the addresses of nodes, with this one. Those of a new cluster must be the same for
	// all its nodes: they are its first members. Later, the log says who they are.
	Peers map[uint64]string
	// Join means that the node waits to be added to a cluster: Peers are no first members. It
	// has no effect if the directory has a log.
	Join bool

	// ElectionTimeout is how long a follower that hears no leader waits at least until it looks for
	// another; twice that at most. If 0, it is DefaultElectionTimeout.
	ElectionTimeout time.Duration
	// Policy is when the log is flushed. With Always, which is recommended, nothing that
	// is committed is lost as long as a majority of the disks is left. With another one, a power cut
	// of a majority can lose what the policy says. The zero value is that of the log.
	Policy commit.Policy
	// Synced, if not nil, gets how long each flush of the log took.
	Synced func(time.Duration)
	// TailBytes is how much of the log is kept in memory for followers that are behind. If 0, it
	// is DefaultTailBytes.
	TailBytes int
	// RoomBytes is how much may be proposed and not committed before Room waits. If 0, it is
	// DefaultRoomBytes.
	RoomBytes int

	// Owner has the state. It is called from Open on.
	Owner Owner
	// Note, if not nil, gets what the owners of other nodes tell this one: see Node.Tell. It is called in
	// goroutines of the transport, which must not wait, and owns the bytes.
	Note func(from uint64, note []byte)
	// Transport connects the nodes. The node closes it.
	Transport Transport
	// Logger gets what an operator should know. If nil, nothing is logged.
	Logger *slog.Logger
}

// check sets defaults and returns an error for what is invalid.
func (o *Options) check() error {
	c := option.Checker{Package: "cluster"}
	c.If(o.Node == 0 || o.Node >= 1<<63, "Node", "is not the id of a node")
	c.If(o.Owner == nil, "Owner", "is missing")
	c.If(o.Transport == nil, "Transport", "is missing")
	c.If(len(o.Peers) > maxMembers, "Peers", fmt.Sprintf("has more than %d nodes", maxMembers))
	for _, id := range slices.Sorted(maps.Keys(o.Peers)) {
		if a := o.Peers[id]; id == 0 || id >= 1<<63 || a == "" || len(a) > maxAddress {
			c.Bad("Peers", "%d is not a node with an address", id)
		}
	}
	if _, ok := o.Peers[o.Node]; !ok && !o.Join {
		c.Bad("Peers", "does not have this node, %d", o.Node)
	}
	option.Default(&c, "ElectionTimeout", &o.ElectionTimeout, DefaultElectionTimeout)
	option.Default(&c, "TailBytes", &o.TailBytes, DefaultTailBytes)
	option.Default(&c, "RoomBytes", &o.RoomBytes, DefaultRoomBytes)
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError + 1}))
	}
	return c.Err()
}
