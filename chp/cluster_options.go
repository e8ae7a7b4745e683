package chp

import (
	"context"
	"crypto/rand"
	"errors"

	"clustermap/chp/internal/collect"
	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/journal/raft"
	"clustermap/chp/internal/member"
	"clustermap/chp/internal/wire"
	"clustermap/internal/option"
	"clustermap/sockets"
)

// ClusterOptions make a server a node of a cluster. All its nodes have the same map, with the same
// sequences, as long as a majority of them is left; each serves clients. Package chp has the server's side of it, and no
// algorithm: Open has that, such as chp serve has by package clustermap/chp/cluster.
type ClusterOptions struct {
	// Open opens the server's node. The owner is told of what is committed from then on, also before Open returns. The
	// server closes the node.
	Open func(owner ClusterOwner) (ClusterNode, error)
}

// ClusterNode is a node of a cluster: one log on all nodes.
type ClusterNode = raft.Node

// ClusterOwner is what a node tells of the log: the server.
type ClusterOwner = raft.Owner

// What nodes and owners say to each other.
type (
	ClusterEntry    = raft.Entry    // an entry that is committed
	ClusterImage    = raft.Image    // a copy of the map
	ClusterSnapshot = raft.Snapshot // a map to begin with
	ClusterStatus   = raft.Status   // who leads
	ClusterMember   = raft.Member   // a node of the cluster
)

// checkCluster returns errors for options that do not go with Cluster.
func (o *ServerOptions) checkCluster() (errs []error) {
	if o.Cluster == nil {
		return nil
	}
	bad := func(on bool, reason string) {
		if on {
			errs = append(errs, option.New("chp", "Cluster", "%s", reason))
		}
	}
	bad(o.Cluster.Open == nil, "has no Open")
	bad(o.Log != nil, "is not for a server with Log: the log of the cluster takes its place")
	bad(o.Pair != nil, "is not for a server of a pair")
	bad(o.Preload != nil, "is not for a server with Preload: use a client to set the first keys")
	bad(!wire.DialectOf(o.Model).Full, "needs the full protocol, model 6")
	return errs
}

// newMember returns the part of a server that belongs to a cluster, without a node.
func newMember(s *Server, o *ServerOptions, j journal.Journal) *member.Member {
	options := member.Options{
		Order: &s.sequencer, Journal: j.(*raft.Journal), ExpiryGrace: o.ExpiryGrace, Log: s.log,
		Answer: func(ctx context.Context, peer *sockets.Peer, want wire.Want) error {
			return s.snapshots.Add(ctx, peer, want)
		},
		Dismiss: func(reason error, ours bool) {
			switch {
			case s.members == nil: // the server is being made
			case ours:
				s.members.DisconnectOurs(reason)
			default:
				s.members.DisconnectAll(reason)
			}
		},
	}
	rand.Read(options.ID[:]) // never fails
	return member.New(options)
}

// relayOf returns the relay of a member, or nil.
func relayOf(m *member.Member) collect.Relay {
	if m == nil {
		return nil
	}
	return m
}

// transfer makes another node lead, if this one does and there is another one.
func (s *Server) transfer() {
	if s.member == nil || !s.member.Status().Leading {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), transferTimeout)
	defer cancel()
	if err := s.member.Node().Transfer(ctx, 0); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		s.log.Info("no other node leads", "error", err)
	}
}
