package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"clustermap/chp"
	"clustermap/chp/cluster"
	"clustermap/chp/commit"
	"clustermap/internal/link"
	"clustermap/sockets"

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

// nodeOffset is the distance of the port on which nodes talk to each other from the first one.
const nodeOffset = 3

// clusterFlags are the flags of a node.
type clusterFlags struct {
	node     uint64
	nodes    string
	election time.Duration
}

func (c *clusterFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&c.nodes, "cluster", "", "the `nodes` of the cluster to which this server belongs: 1=tcp://HOST:PORT,2=tcp://HOST:PORT,...")
	flags.Uint64Var(&c.node, "node", 0, "which node of --cluster this server is")
	flags.DurationVar(&c.election, "election-timeout", cluster.DefaultElectionTimeout, "how long a node of a cluster that hears no leader waits until it looks for another; longer for slow disks")
}

// parseNodes parses the value of --cluster.
func parseNodes(text string) (map[uint64]string, error) {
	all := map[uint64]string{}
	for _, one := range strings.Split(text, ",") {
		id, endpoint, ok := strings.Cut(strings.TrimSpace(one), "=")
		n, err := strconv.ParseUint(id, 10, 63)
		if !ok || err != nil || n == 0 {
			return nil, fail(exitUsage, "--cluster: %q must have the form NODE=tcp://HOST:PORT", one)
		}
		if _, err := nodeAddress(endpoint); err != nil {
			return nil, fail(exitUsage, "--cluster: node %d: %s", n, plain(err))
		}
		if all[n] != "" {
			return nil, fail(exitUsage, "--cluster: node %d is there twice", n)
		}
		all[n] = endpoint
	}
	return all, nil
}

// nodeAddress returns the endpoint on which a node talks to others, given its first one.
func nodeAddress(endpoint string) (string, error) {
	e, err := link.Parse(endpoint, false)
	if err != nil {
		return "", err
	}
	if e.Scheme != link.TCP {
		return "", fmt.Errorf("%s: a node needs tcp://HOST:PORT", endpoint)
	}
	host, port, err := net.SplitHostPort(strings.TrimPrefix(endpoint, "tcp://"))
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > maxPort-1 {
		return "", fmt.Errorf("%s: the port must be 1 to %d, with three more above it", endpoint, maxPort-1)
	}
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(n+nodeOffset)), nil
}

// options returns the options of the cluster, or nil without one. It makes the server listen at its own entry.
func (c *clusterFlags) options(cmd *cobra.Command, f *serveFlags, security sockets.Security, log *slog.Logger) (*chp.ClusterOptions, error) {
	if c.nodes == "" {
		for _, name := range []string{"node", "election-timeout"} {
			if cmd.Flags().Changed(name) {
				return nil, fail(exitUsage, "--%s is for a node of a cluster: add --cluster", name)
			}
		}
		return nil, nil
	}
	nodes, err := parseNodes(c.nodes)
	if err != nil {
		return nil, err
	}
	own := nodes[c.node]
	switch {
	case c.node == 0:
		return nil, fail(exitUsage, "--cluster needs --node: which of the nodes is this one?")
	case own == "":
		return nil, fail(exitUsage, "--node %d is not in --cluster", c.node)
	case f.data == "":
		return nil, fail(exitUsage, "--cluster needs --data: a node keeps its log on disk")
	case f.pair.primary || f.pair.backup:
		return nil, fail(exitUsage, "--cluster is not for a server of a pair")
	case f.load != "":
		return nil, fail(exitUsage, "--load is not for a cluster: use chp load")
	case len(f.Endpoints) > 0:
		return nil, fail(exitUsage, "--cluster says where the node listens: --endpoint is not for it")
	case c.election <= 0:
		return nil, fail(exitUsage, "--election-timeout %v: must be positive", c.election)
	}
	host, port, _ := net.SplitHostPort(strings.TrimPrefix(own, "tcp://")) // parseNodes has looked
	if !cmd.Flags().Changed("host") {
		f.Host = host
	}
	if f.Port, err = strconv.Atoi(port); err != nil {
		return nil, err
	}
	policy := f.Sync
	if !cmd.Flags().Changed("sync") {
		policy = commit.Always()
	}
	listen, err := nodeAddress("tcp://" + net.JoinHostPort(f.Host, port))
	if err != nil {
		return nil, err
	}
	id, err := clusterID(f.data, nodes)
	if err != nil {
		return nil, f.dataError(err)
	}
	open := func(owner chp.ClusterOwner) (chp.ClusterNode, error) {
		bound := sockets.Options{}
		connected := sockets.Options{}
		if security.CurveServer {
			public := security.CurveSecretKey.Public()
			bound.Security = sockets.Security{CurveServer: true, CurveSecretKey: security.CurveSecretKey, Authenticate: sockets.AllowKeys(public)}
			connected.Security = sockets.Security{CurveServerKey: public, CurvePublicKey: public, CurveSecretKey: security.CurveSecretKey}
		}
		ctx, cancel := context.WithTimeout(context.Background(), bindTimeout)
		defer cancel()
		t, err := cluster.NewSocketTransport(ctx, cluster.SocketOptions{Node: c.node, Cluster: id, Listen: listen, Bound: bound, Connected: connected, Logger: log})
		if err != nil {
			return nil, &chp.ListenError{Endpoint: listen, Err: err}
		}
		n, err := cluster.Open(cluster.Options{
			Dir: f.data, Node: c.node, Cluster: id, Peers: nodes, ElectionTimeout: c.election, Policy: policy,
			Owner: clusterOwner{owner, new([]chp.ClusterEntry)}, Note: owner.Note, Transport: nodeTransport{t}, Logger: log,
		})
		if err != nil {
			return nil, err
		}
		return clusterNode{n}, nil
	}
	return &chp.ClusterOptions{Open: open}, nil
}

// bindTimeout bounds the time to listen.
const bindTimeout = 10 * time.Second

// clusterID returns the identity of the cluster: that in the node's directory, or that of a new one with these nodes.
func clusterID(dir string, nodes map[uint64]string) (cluster.ID, error) {
	if id, ok, err := cluster.DirID(dir); ok || err != nil {
		return id, err
	}
	h := sha256.New()
	for _, n := range slices.Sorted(maps.Keys(nodes)) {
		fmt.Fprintf(h, "%d=%s\n", n, nodes[n])
	}
	return cluster.ID(h.Sum(nil)), nil
}

// nodeTransport connects nodes, whose addresses are those for clients.
type nodeTransport struct{ *cluster.SocketTransport }

func (t nodeTransport) Peers(to map[uint64]string) {
	all := map[uint64]string{}
	for n, endpoint := range to {
		if a, err := nodeAddress(endpoint); err == nil {
			all[n] = a
		}
	}
	t.SocketTransport.Peers(all)
}

// clusterNode is a node for package chp.
type clusterNode struct{ *cluster.Node }

func (n clusterNode) Propose(term uint64, e *commit.Entry) (uint64, error) {
	at, err := n.Node.Propose(term, e)
	return at.Index, err
}

func (n clusterNode) ReadIndex(ctx context.Context) error {
	_, err := n.Node.ReadIndex(ctx)
	return err
}

func (n clusterNode) AddLearner(ctx context.Context, node uint64, address string) error {
	return n.Change(ctx, cluster.Change{Kind: cluster.ChangeAdd, Node: node, Address: address})
}

func (n clusterNode) Promote(ctx context.Context, node uint64) error {
	return n.Change(ctx, cluster.Change{Kind: cluster.ChangePromote, Node: node})
}

func (n clusterNode) Remove(ctx context.Context, node uint64) error {
	return n.Change(ctx, cluster.Change{Kind: cluster.ChangeRemove, Node: node})
}

func (n clusterNode) Status() chp.ClusterStatus { return clusterStatus(n.Node.Status()) }

func (n clusterNode) Members() (all []chp.ClusterMember) {
	for _, m := range n.Node.Members() {
		all = append(all, chp.ClusterMember(m))
	}
	return all
}

func clusterStatus(s cluster.Status) chp.ClusterStatus {
	return chp.ClusterStatus{Node: s.Node, Term: s.Term, Role: string(s.Role), Leader: s.Leader, Leading: s.Leading}
}

// clusterOwner is the owner of a node.
type clusterOwner struct {
	chp.ClusterOwner
	entries *[]chp.ClusterEntry // scratch
}

func (o clusterOwner) Committed(all []cluster.Committed) {
	entries := (*o.entries)[:0]
	for i := range all {
		entries = append(entries, chp.ClusterEntry(all[i]))
	}
	o.ClusterOwner.Committed(entries)
	clear(entries)
	*o.entries = entries
}

func (o clusterOwner) Lost(all []cluster.Position, known bool) { o.ClusterOwner.Lost(len(all), known) }
func (o clusterOwner) Changed(s cluster.Status)                { o.ClusterOwner.Changed(clusterStatus(s)) }
func (o clusterOwner) Image() (cluster.Image, error)           { return o.ClusterOwner.Image() }
func (o clusterOwner) Restore(s *cluster.Snapshot) error {
	return o.ClusterOwner.Restore(clusterSnapshot{s})
}

// clusterSnapshot is a snapshot for package chp.
type clusterSnapshot struct{ s *cluster.Snapshot }

func (s clusterSnapshot) Sequence() uint64                          { return s.s.Sequence }
func (s clusterSnapshot) Entries(fn func(commit.Entry) error) error { return s.s.Entries(fn) }
