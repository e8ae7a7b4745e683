package main

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/chp"
	"clustermap/chp/cluster"
	"clustermap/chp/commit"
	"clustermap/internal/clusternode"
	"clustermap/internal/wake"
	"clustermap/sockets"
	"clustermap/zmtp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const clusterHelp = `

With --cluster the server is a node of a cluster of three or more, which survives the
loss of any minority of them: --cluster 1=tcp://HOST:PORT,2=tcp://HOST:PORT,... names
them all, the same for each, and --node says which one this is; it needs --data. The nodes
talk to each other on PORT+3. Clients list the nodes with --server, and may use any. An
update is published, and "chp set" returns, when a majority has it on its disk. With
--curve-key all nodes use the same key. "chp cluster dev" runs three nodes on this
machine.`

// clusterFlags are the flags of a node.
type clusterFlags struct {
	node     uint64
	nodes    string
	join     string
	learner  bool
	election time.Duration
	offset   int

	joined    func(ctx context.Context, server *chp.Server) // asks for a vote; nil if that is not wanted
	synced    func(time.Duration)                           // gets how long each flush of the log took, or nil
	transport *cluster.SocketTransport                      // nil before the node is open
}

// setKeys gives the node keys that were read again: the server's own ones, by which nodes know each other.
func (c *clusterFlags) setKeys(own []zmtp.SecretKey) error {
	if c.transport == nil {
		return nil
	}
	return c.transport.SetSecurity(clusternode.Security(own))
}

func (c *clusterFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&c.nodes, "cluster", "", "the `nodes` of the cluster to which this server belongs: 1=tcp://HOST:PORT,2=tcp://HOST:PORT,...")
	flags.Uint64Var(&c.node, "node", 0, "which node of --cluster this server is")
	flags.StringVar(&c.join, "join", "", "any node's `endpoint` of a cluster to join, as the node at --host and --port, or --advertise")
	flags.BoolVar(&c.learner, "learner", false, "with --join, take no part in votes: only serve clients")
	flags.IntVar(&c.offset, "node-offset", clusternode.Offset, "how far above a node's first port the one is on which the nodes talk to each other, the same at all nodes")
	flags.DurationVar(&c.election, "election-timeout", cluster.DefaultElectionTimeout, "how long a node of a cluster that hears no leader waits until it looks for another; longer for slow disks")
}

// parseNodes parses the value of --cluster.
func parseNodes(text string, offset int) (map[uint64]string, error) {
	all := map[uint64]string{}
	for _, one := range strings.Split(text, ",") {
		id, endpoint, ok := strings.Cut(strings.TrimSpace(one), "=")
		n, err := strconv.ParseUint(id, 10, 63)
		if !ok || err != nil || n == 0 {
			return nil, fail(exitUsage, "--cluster: %q must have the form NODE=tcp://HOST:PORT", one)
		}
		if _, err := clusternode.Address(endpoint, offset); err != nil {
			return nil, fail(exitUsage, "--cluster: node %d: %s", n, plain(err))
		}
		if all[n] != "" {
			return nil, fail(exitUsage, "--cluster: node %d is there twice", n)
		}
		all[n] = endpoint
	}
	return all, nil
}

// membership is what a node begins with.
type membership struct {
	id    cluster.ID
	node  uint64
	own   string // its endpoint
	peers map[uint64]string
	join  bool
}

// options returns the options of the cluster, or nil without one. It makes the server listen at its own entry.
func (c *clusterFlags) options(ctx context.Context, cmd *cobra.Command, f *serveFlags, security sockets.Security, log *slog.Logger) (*chp.ClusterOptions, error) {
	changed := cmd.Flags().Changed
	switch {
	case c.nodes == "" && c.join == "":
		for _, name := range []string{"node", "election-timeout", "learner", "node-offset"} {
			if changed(name) {
				return nil, fail(exitUsage, "--%s is for a node of a cluster: add --cluster or --join", name)
			}
		}
		return nil, nil
	case c.nodes != "" && c.join != "":
		return nil, fail(exitUsage, "--cluster and --join exclude each other")
	case c.learner && c.join == "":
		return nil, fail(exitUsage, "--learner is for --join")
	case f.data == "":
		return nil, fail(exitUsage, "a node of a cluster needs --data: it keeps its log on disk")
	case f.pair.primary || f.pair.backup:
		return nil, fail(exitUsage, "a node of a cluster is no server of a pair")
	case f.load != "":
		return nil, fail(exitUsage, "--load is not for a cluster: use chp load")
	case len(f.Endpoints) > 0:
		return nil, fail(exitUsage, "--endpoint is not for a node of a cluster")
	case f.access.name != "" && !security.CurveServer:
		return nil, fail(exitUsage, "--access at a node of a cluster needs --curve-key: else anybody may be a node")
	case c.offset < clusternode.Offset || c.offset >= maxPort:
		return nil, fail(exitUsage, "--node-offset %d: must be %d or more, since clients use the ports below, and less than %d", c.offset, clusternode.Offset, maxPort)
	case c.election <= 0:
		return nil, fail(exitUsage, "--election-timeout %v: must be positive", c.election)
	}
	var m *membership
	var err error
	if c.join != "" {
		m, err = c.joins(ctx, f, security)
	} else {
		m, err = c.founds(ctx, f, security)
	}
	if err != nil {
		return nil, err
	}
	if c.nodes != "" {
		host, port, _ := net.SplitHostPort(strings.TrimPrefix(m.own, "tcp://")) // parseNodes has looked
		if !changed("host") {
			f.Host = host
		}
		if f.Port, err = strconv.Atoi(port); err != nil {
			return nil, err
		}
	}
	policy := f.Sync
	if !changed("sync") {
		policy = commit.Always()
	}
	listen, err := clusternode.Address("tcp://"+net.JoinHostPort(f.Host, strconv.Itoa(f.Port)), c.offset)
	if err != nil {
		return nil, fail(exitUsage, "%s", plain(err))
	}
	return clusternode.New(ctx, clusternode.Options{
		Dir: f.data, Node: m.node, Cluster: m.id, Peers: m.peers, Join: m.join, Listen: listen, Offset: c.offset,
		ElectionTimeout: c.election, Policy: policy, Security: security, Logger: log, Synced: c.synced,
		Opened: func(t *cluster.SocketTransport) { c.transport = t },
	}), nil
}

// founds returns the membership of one of the first nodes of a cluster.
func (c *clusterFlags) founds(ctx context.Context, f *serveFlags, security sockets.Security) (*membership, error) {
	nodes, err := parseNodes(c.nodes, c.offset)
	switch {
	case err != nil:
		return nil, err
	case c.node == 0:
		return nil, fail(exitUsage, "--cluster needs --node: which of the nodes is this one?")
	case nodes[c.node] == "":
		return nil, fail(exitUsage, "--node %d is not in --cluster", c.node)
	}
	id, is, ok, err := cluster.DirMember(f.data)
	switch {
	case err != nil:
		return nil, f.dataError(err)
	case ok && is.Node != c.node:
		return nil, fail(exitRefused, "--data %s: it is the directory of node %d, not of node %d", f.data, is.Node, c.node)
	case ok:
		if err := known(&is, nodes[c.node]); err != nil {
			return nil, err
		}
	default:
		id = clusternode.ID(nodes)
		if err := neverRan(ctx, f, c.node, nodes, clusternode.Connecting(security)); err != nil {
			return nil, err
		}
	}
	return &membership{id: id, node: c.node, own: nodes[c.node], peers: nodes}, nil
}

// known returns an error if the other nodes know a node by another endpoint: there they look for it.
func known(is *cluster.Member, own string) error {
	if is.Address == "" || is.Address == own {
		return nil
	}
	return fail(exitRefused, "node %d starts at %s, but its cluster knows it at %s: to move a node, remove it (chp cluster remove %d) and let it join again with a new directory", is.Node, own, is.Address, is.Node)
}

// joins returns the membership of a node that joins a cluster, or has done so before. It asks the cluster to add it.
func (c *clusterFlags) joins(ctx context.Context, f *serveFlags, security sockets.Security) (*membership, error) {
	m := &membership{join: true, node: c.node, own: f.Advertise}
	if m.own == "" {
		if ip := net.ParseIP(f.Host); f.Host == "*" || ip != nil && ip.IsUnspecified() {
			return nil, fail(exitUsage, "--join needs --advertise with --host %s: where do the other nodes reach this one?", f.Host)
		}
		if loopbackHost(f.Host) && !loopbackHost(hostOf(c.join)) {
			return nil, fail(exitUsage, "--join %s needs --host or --advertise: the other nodes cannot reach this one at %s", c.join, f.Host)
		}
		m.own = "tcp://" + net.JoinHostPort(f.Host, strconv.Itoa(f.Port))
	}
	if _, err := clusternode.Address(m.own, c.offset); err != nil {
		return nil, fail(exitUsage, "%s", plain(err))
	}
	id, is, ok, err := cluster.DirMember(f.data)
	if err == nil && ok {
		err = known(&is, m.own)
	} else if err != nil {
		err = f.dataError(err)
	}
	if err != nil {
		return nil, err
	}
	ask, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	use := clusternode.Connecting(security)
	if ok { // it goes on with what it knows; who has moved meanwhile, it may learn
		m.id, m.node, m.peers = id, is.Node, map[uint64]string{}
		if st, err := chp.ServerStatus(ask, c.join, use); err == nil && st.Cluster != nil {
			m.meet(st.Cluster)
		}
	} else if err := c.add(ask, f, m, use); err != nil {
		return nil, err
	}
	m.peers[m.node] = m.own
	if !c.learner {
		c.joined = func(ctx context.Context, server *chp.Server) { askForVote(ctx, server, use) }
	}
	return m, nil
}

// hostOf returns the host in an endpoint.
func hostOf(endpoint string) string {
	host, _, _ := net.SplitHostPort(strings.TrimPrefix(endpoint, "tcp://"))
	return host
}

// loopbackHost reports whether only programs on the same machine reach a host by that name.
func loopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return ip.IsLoopback() || host == "localhost"
}

// meet takes over who the members are, and returns the endpoint of the leader, or "".
func (m *membership) meet(st *chp.NodeStatus) (leader string) {
	m.peers = map[uint64]string{}
	for _, n := range st.Members {
		m.peers[n.Node] = n.Endpoint
		if n.Node == st.Leader {
			leader = n.Endpoint
		}
	}
	return leader
}

// add asks a cluster to add a node, unless it knows it, as soon as a node leads.
func (c *clusterFlags) add(ctx context.Context, f *serveFlags, m *membership, use sockets.Security) error {
	for {
		st, err := chp.ServerStatus(ctx, c.join, use)
		switch {
		case err != nil:
			return fail(exitNoServer, "--join %s: %s", c.join, plain(err))
		case st.Cluster == nil:
			return fail(exitRefused, "--join %s: it is not a node of a cluster", c.join)
		}
		if m.id, err = cluster.ParseID(st.Cluster.ID); err != nil {
			return fail(exitRefused, "--join %s: %s", c.join, plain(err))
		}
		leader := m.meet(st.Cluster)
		for _, n := range st.Cluster.Members {
			switch {
			case n.Endpoint != m.own:
			case !n.Learner: // what it has acknowledged, and for whom it has voted, must not be forgotten
				return fail(exitRefused, "--data %s is not the directory of node %d, which is at %s and has a vote: remove that node before another one joins there (chp cluster remove %d)", f.data, n.Node, m.own, n.Node)
			default: // it was added before
				m.node = n.Node
				return neverRan(ctx, f, n.Node, m.peers, use)
			}
		}
		if m.node == 0 {
			m.node = uint64(rand.Uint32()) | 1<<16 // no node has had it
		}
		if leader != "" {
			err = chp.ChangeCluster(ctx, leader, use, chp.ClusterChange{Add: m.node, Endpoint: m.own})
			if err == nil {
				return nil
			}
			return fail(exitRefused, "--join: %s", plain(err))
		}
		if !wake.Pause(ctx, leaderAgain) {
			return fail(exitRefused, "--join %s: no node leads, so none can be added", c.join)
		}
	}
}

// neverRan returns an error if one of the other nodes has heard of a node whose directory is empty: it has lost it.
func neverRan(ctx context.Context, f *serveFlags, node uint64, peers map[uint64]string, use sockets.Security) error {
	if some, err := os.ReadDir(f.data); err == nil && len(some) > 0 {
		return nil // it is damaged, or that of a server without a cluster: who opens it says so
	}
	ctx, cancel := context.WithTimeout(ctx, lostTimeout)
	defer cancel()
	var asking sync.WaitGroup
	var said atomic.Pointer[string] // the endpoint of a node that has heard of it
	for n, endpoint := range peers {
		if n == node {
			continue
		}
		asking.Go(func() {
			st, err := chp.ServerStatus(ctx, endpoint, use)
			if err != nil || st.Cluster == nil { // it does not run, or for the first time, too
				return
			}
			for _, m := range st.Cluster.Members {
				if m.Node == node && m.Heard {
					said.Store(&endpoint)
				}
			}
		})
	}
	asking.Wait()
	if by := said.Load(); by != nil {
		return fail(exitRefused, `--data %s: there is no node in it, and node %d has run before, says %s. A node that has lost its directory
may have acknowledged what the others lack, so it must not come back under its number: "chp cluster remove %d --server %s",
and then start this one with --join %s`, f.data, node, *by, node, *by, *by)
	}
	return nil
}

// lostTimeout bounds what a node that starts for the first time waits for what the others say of it.
const lostTimeout = 2 * time.Second

// joinTimeout bounds what a node waits for the cluster before it starts.
const joinTimeout = 10 * time.Second

// voteAgain is the pause before a node asks again for a vote.
const voteAgain = 500 * time.Millisecond

// askForVote asks for a vote for a node that joins, until it has one: the leader gives it one when it has nearly all of the log.
func askForVote(ctx context.Context, server *chp.Server, security sockets.Security) {
	t := time.NewTicker(voteAgain)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		st := server.Status().Cluster
		leader := ""
		for _, n := range st.Members {
			if n.Node == st.Leader {
				leader = n.Endpoint
			}
			if n.Node == st.Node && !n.Learner {
				return
			}
		}
		if leader != "" {
			within, cancel := context.WithTimeout(ctx, joinTimeout)
			_ = chp.ChangeCluster(within, leader, security, chp.ClusterChange{Promote: st.Node}) // otherwise again
			cancel()
		}
	}
}
