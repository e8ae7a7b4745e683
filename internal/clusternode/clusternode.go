// Package clusternode makes servers of package chp nodes of a cluster by package chp/cluster: for chp
// serve, and for what measures it.
package clusternode

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
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
	"clustermap/internal/wake"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Offset is the distance of the port on which nodes talk to each other from the first one, unless Options says otherwise.
const Offset = 3

// Options are the settings of a node.
type Options struct {
	Dir     string            // with its log
	Node    uint64            // its number
	Cluster cluster.ID        // the same for all nodes
	Peers   map[uint64]string // the first endpoints of nodes, as clients have them, with this one
	Join    bool              // it waits to be added to a cluster
	Listen  string            // the endpoint for other nodes
	Offset  int               // of the port for other nodes from the first one, the same at all nodes; if 0, Offset

	// ElectionTimeout, if not 0, is how long a node that hears no leader waits at least.
	ElectionTimeout time.Duration
	// Policy is when the log is flushed.
	Policy commit.Policy
	// Synced, if not nil, gets how long each flush of the log took.
	Synced func(time.Duration)
	// Security is that of the server, whose keys all nodes have.
	Security sockets.Security
	Logger   *slog.Logger
	// Opened, if not nil, gets the transport of the node when that is open.
	Opened func(*cluster.SocketTransport)
}

// New returns what makes a server a node. The context bounds what opening the node takes.
func New(ctx context.Context, o Options) *chp.ClusterOptions {
	return &chp.ClusterOptions{Open: func(owner chp.ClusterOwner) (chp.ClusterNode, error) { return open(ctx, &o, owner) }}
}

func open(ctx context.Context, o *Options, to chp.ClusterOwner) (chp.ClusterNode, error) {
	var bound, connected sockets.Options
	bound.Security, connected.Security = Security(ownKeys(o.Security))
	ctx, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	t, err := cluster.NewSocketTransport(ctx, cluster.SocketOptions{Node: o.Node, Cluster: o.Cluster, Listen: o.Listen, Bound: bound, Connected: connected, Logger: o.Logger})
	if err != nil {
		return nil, &chp.ListenError{Endpoint: o.Listen, Err: err}
	}
	n, err := cluster.Open(cluster.Options{
		Dir: o.Dir, Node: o.Node, Cluster: o.Cluster, Peers: o.Peers, Join: o.Join, ElectionTimeout: o.ElectionTimeout, Policy: o.Policy, Synced: o.Synced,
		Owner: owner{to, new([]chp.ClusterEntry)}, Note: to.Note, Transport: transport{t, cmp.Or(o.Offset, Offset)}, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	if o.Opened != nil {
		o.Opened(t)
	}
	return node{n, o.Cluster.String()}, nil
}

// ownKeys returns the keys of a server with CURVE.
func ownKeys(s sockets.Security) []zmtp.SecretKey {
	if !s.CurveServer {
		return nil
	}
	return append([]zmtp.SecretKey{s.CurveSecretKey}, s.CurveMoreKeys...)
}

// Security returns the security with which a node listens to others, and that with which it connects to them. All nodes
// have the same keys; while these change, some have one that others do not have yet, or any more, beside one that they have.
func Security(own []zmtp.SecretKey) (bound, connected sockets.Security) {
	if len(own) == 0 {
		return bound, connected
	}
	var public []zmtp.PublicKey
	for _, key := range own {
		public = append(public, key.Public())
	}
	bound = sockets.Security{CurveServer: true, CurveSecretKey: own[0], CurveMoreKeys: own[1:], Authenticate: sockets.AllowKeys(public...)}
	connected = sockets.Security{CurveServerKey: public[0], CurveMoreServerKeys: public[1:], CurvePublicKey: public[0], CurveSecretKey: own[0]}
	return bound, connected
}

// Connecting is the security with which a node of a server connects to others.
func Connecting(s sockets.Security) sockets.Security {
	_, connected := Security(ownKeys(s))
	return connected
}

// ID returns the id of a cluster whose first nodes have these numbers and endpoints.
func ID(nodes map[uint64]string) cluster.ID {
	h := sha256.New()
	for _, n := range slices.Sorted(maps.Keys(nodes)) {
		fmt.Fprintf(h, "%d=%s\n", n, nodes[n])
	}
	return cluster.ID(h.Sum(nil))
}

// Address returns the endpoint on which a node talks to others, given its first one.
func Address(endpoint string, offset int) (string, error) {
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
	if most := maxPort - offset; err != nil || n < 1 || n > most {
		return "", fmt.Errorf("%s: the port must be 1 to %d: the other nodes use the one %d above it", endpoint, most, offset)
	}
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(n+offset)), nil
}

// transport connects nodes, whose addresses are those for clients.
type transport struct {
	*cluster.SocketTransport
	offset int
}

func (t transport) Peers(to map[uint64]string) {
	all := map[uint64]string{}
	for n, endpoint := range to {
		if a, err := Address(endpoint, t.offset); err == nil {
			all[n] = a
		}
	}
	t.SocketTransport.Peers(all)
}

// node is a node for package chp.
type node struct {
	*cluster.Node
	id string // of the cluster
}

func (n node) Propose(term uint64, e *commit.Entry) (uint64, error) {
	at, err := n.Node.Propose(term, e)
	return at.Index, err
}

func (n node) ReadIndex(ctx context.Context) error {
	_, err := n.Node.ReadIndex(ctx)
	return err
}

// change makes a change as soon as no other one is under way.
func (n node) change(ctx context.Context, c cluster.Change) error {
	for {
		err := n.Node.Change(ctx, c)
		if !errors.Is(err, cluster.ErrBusy) || !wake.Pause(ctx, changeAgain) {
			return err
		}
	}
}

func (n node) AddLearner(ctx context.Context, id uint64, address string) error {
	return n.change(ctx, cluster.Change{Kind: cluster.ChangeAdd, Node: id, Address: address})
}

func (n node) Promote(ctx context.Context, id uint64) error {
	return n.change(ctx, cluster.Change{Kind: cluster.ChangePromote, Node: id})
}

func (n node) Remove(ctx context.Context, id uint64) error {
	return n.change(ctx, cluster.Change{Kind: cluster.ChangeRemove, Node: id})
}

func (n node) Status() chp.ClusterStatus {
	s := statusOf(n.Node.Status())
	s.ID = n.id
	return s
}

func (n node) Members() (all []chp.ClusterMember) {
	for _, m := range n.Node.Members() {
		all = append(all, chp.ClusterMember(m))
	}
	return all
}

func statusOf(s cluster.Status) chp.ClusterStatus {
	return chp.ClusterStatus{Node: s.Node, Term: s.Term, Role: string(s.Role), Leader: s.Leader, Leading: s.Leading}
}

// owner is the owner of a node.
type owner struct {
	chp.ClusterOwner
	entries *[]chp.ClusterEntry // scratch
}

func (o owner) Committed(all []cluster.Committed) {
	entries := (*o.entries)[:0]
	for i := range all {
		entries = append(entries, chp.ClusterEntry(all[i]))
	}
	o.ClusterOwner.Committed(entries)
	clear(entries)
	*o.entries = entries
}

func (o owner) Lost(all []cluster.Position, known bool) { o.ClusterOwner.Lost(len(all), known) }
func (o owner) Changed(s cluster.Status)                { o.ClusterOwner.Changed(statusOf(s)) }
func (o owner) Image() (cluster.Image, error)           { return o.ClusterOwner.Image() }
func (o owner) Restore(s *cluster.Snapshot) error       { return o.ClusterOwner.Restore(snapshot{s}) }

// snapshot is a snapshot for package chp.
type snapshot struct{ s *cluster.Snapshot }

func (s snapshot) Sequence() uint64                          { return s.s.Sequence }
func (s snapshot) Entries(fn func(commit.Entry) error) error { return s.s.Entries(fn) }
