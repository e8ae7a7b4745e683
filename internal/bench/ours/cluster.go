package ours

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"clustermap/chp"
	"clustermap/chp/commit"
	"clustermap/internal/bench/ports"
	"clustermap/internal/clusternode"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// Node configures a node of a cluster.
type Node struct {
	Number uint64
	Host   string
	Port   int
	Nodes  map[uint64]string // the first endpoints of all, by number
	// ElectionTimeout, if not 0, replaces the default.
	ElectionTimeout time.Duration `json:",omitempty"`
}

// ClusterServers returns the arguments of the nodes of a cluster, each with a directory of its own in
// dir.
func ClusterServers(n int, dir string, sync commit.Policy, election time.Duration) ([]any, error) {
	nodes := map[uint64]string{}
	host := ports.Own()
	first, err := ports.Free(host, n*portsOfServer)
	if err != nil {
		return nil, err
	}
	port := func(i int) int { return first + i*portsOfServer }
	for i := range n {
		nodes[uint64(i+1)] = "tcp://" + net.JoinHostPort(host, strconv.Itoa(port(i)))
	}
	var servers []any
	for i := range n {
		own := filepath.Join(dir, fmt.Sprint("node", i+1))
		if err := os.Mkdir(own, 0o700); err != nil {
			return nil, err
		}
		servers = append(servers, ServerArgs{Data: own, Sync: sync.String(), Node: &Node{uint64(i + 1), host, port(i), nodes, election}})
	}
	return servers, nil
}

// configure makes the server of the options a node with its log in the directory of the arguments.
func (n *Node) configure(ctx context.Context, o *chp.ServerOptions, dir string) error {
	listen, err := clusternode.Address(n.Nodes[n.Number], clusternode.Offset)
	if err != nil {
		return err
	}
	o.Host, o.Port = n.Host, n.Port
	o.Cluster = clusternode.New(ctx, clusternode.Options{
		Dir: dir, Node: n.Number, Cluster: clusternode.ID(n.Nodes), Peers: n.Nodes, Listen: listen,
		ElectionTimeout: n.ElectionTimeout, Policy: o.Sync, Logger: o.Logger,
	})
	return nil
}

// Leader returns the endpoints of the nodes of a cluster with that of the leader first, when one leads
// and all others follow it.
func Leader(ctx context.Context, servers []string, patience time.Duration) ([]string, error) {
	var order []string
	return order, settled(ctx, patience, func(ctx context.Context) error {
		all, err := statuses(ctx, servers)
		if err != nil {
			return err
		}
		leader, err := leaderOf(all)
		if err != nil {
			return err
		}
		order = append([]string{servers[leader]}, slices.Delete(slices.Clone(servers), leader, leader+1)...)
		return nil
	})
}

// CompareCluster waits until all nodes of a cluster have the same content, or returns an error that tells
// how they differ. Those that follow may be a moment behind.
func CompareCluster(ctx context.Context, servers []string, patience time.Duration) error {
	return settled(ctx, patience, func(ctx context.Context) error {
		all, err := statuses(ctx, servers)
		if err != nil {
			return err
		}
		return clusterFault(all)
	})
}

// statuses returns what each server says of itself.
func statuses(ctx context.Context, servers []string) ([]chp.Status, error) {
	var all []chp.Status
	for _, s := range servers {
		st, err := chp.ServerStatus(ctx, s, sockets.Security{})
		if err != nil {
			return nil, fmt.Errorf("the server %s does not say how it is: %w", s, err)
		}
		all = append(all, st)
	}
	return all, nil
}

// leaderOf returns the place of the node that leads, if all nodes know it.
func leaderOf(all []chp.Status) (leader int, err error) {
	leader = -1
	for i, st := range all {
		if c := st.Cluster; c == nil || c.Leader == 0 || c.Leader != all[0].Cluster.Leader || c.Term != all[0].Cluster.Term {
			return -1, errors.New("the nodes do not follow one leader")
		} else if c.Leader == c.Node && st.State == chp.ServerActive {
			leader = i
		}
	}
	if leader < 0 {
		return -1, errors.New("the leader does not serve")
	}
	return leader, nil
}

// clusterFault returns an error if the nodes do not follow one leader, or differ.
func clusterFault(all []chp.Status) error {
	leader, err := leaderOf(all)
	if err != nil {
		return err
	}
	l := &all[leader]
	for _, st := range all {
		if st.Keys != l.Keys || st.Sequence != l.Sequence {
			return fmt.Errorf("the nodes differ: node %d, which leads, has %d keys at sequence %d, node %d has %d keys at sequence %d",
				l.Cluster.Node, l.Keys, l.Sequence, st.Cluster.Node, st.Keys, st.Sequence)
		}
	}
	return nil
}

// settled calls check until it returns nil, or the patience is over: then it returns the last error.
func settled(ctx context.Context, patience time.Duration, check func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil || !wake.Pause(ctx, settledAgain) {
			return err
		}
	}
}

// settledAgain is the pause before servers are compared again.
const settledAgain = 10 * time.Millisecond
