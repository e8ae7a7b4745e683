package chp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"clustermap/chp/internal/collect"
	"clustermap/chp/internal/journal"
	"clustermap/chp/internal/journal/raft"
	"clustermap/chp/internal/member"
	"clustermap/chp/internal/wire"
	"clustermap/internal/option"
	"clustermap/internal/visible"
	"clustermap/internal/wake"
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

// NodeStatus is what a node knows of its cluster.
type NodeStatus struct {
	ID      string       `json:"id"` // of the cluster
	Node    uint64       `json:"node"`
	State   string       `json:"state"` // leader, follower, candidate or learner
	Term    uint64       `json:"term"`
	Leader  uint64       `json:"leader"` // 0 if none is known
	Members []NodeMember `json:"members"`
}

// NodeMember is a node of a cluster as another one knows it.
type NodeMember struct {
	Node     uint64 `json:"node"`
	Endpoint string `json:"endpoint"`
	Learner  bool   `json:"learner"` // it has no vote
	// Active says that the node has answered the leader of late, and Lag is the number of entries of the log, batches of updates,
	// that it is not known to have. Only the leader knows these: from another node they are false and -1.
	Active bool  `json:"active"`
	Lag    int64 `json:"lag"`
	// Heard says that the node has run: the one that was asked has had a message of it, at any time. If its directory is
	// empty it has lost it, and must be removed.
	Heard bool `json:"heard"`
}

// nodeStatus sets the fields of a node of a cluster.
func (s *Server) nodeStatus(st *Status) {
	if s.member == nil || s.member.Node() == nil {
		return
	}
	now := s.member.Node().Status()
	st.Role, st.Epoch = RoleNode, now.Term
	n := &NodeStatus{ID: now.ID, Node: now.Node, State: now.Role, Term: now.Term, Leader: now.Leader}
	all := s.member.Node().Members()
	newest := uint64(0)
	for _, m := range all {
		newest = max(newest, m.Match)
	}
	for _, m := range all {
		lag := int64(-1)
		if now.Leader == now.Node {
			lag = int64(newest - m.Match)
		}
		n.Members = append(n.Members, NodeMember{m.Node, m.Address, m.Learner, m.Active, lag, m.Heard})
	}
	st.Cluster = n
	switch {
	case st.State != ServerActive || now.Leader == 0:
		st.State = ServerWaiting
	case now.Leader != now.Node:
		st.State = ServerPassive
	}
}

// ClusterChange is a change of a cluster: the fields that are set are made, one after the other.
type ClusterChange struct {
	Add      uint64 `json:"add,omitempty"`      // a node that gets the map, and has no vote
	Endpoint string `json:"endpoint,omitempty"` // of Add, as clients and nodes reach it
	Promote  uint64 `json:"promote,omitempty"`  // a node that gets a vote
	Remove   uint64 `json:"remove,omitempty"`   // a node
	Transfer uint64 `json:"transfer,omitempty"` // the node that is to lead; 0 for none
	Resign   bool   `json:"resign,omitempty"`   // another node is to lead, whichever has most of the log
}

// ClusterChangeError reports that a change was not made.
type ClusterChangeError struct {
	Server string // as passed to ChangeCluster
	Reason string // the server's answer
}

func (e *ClusterChangeError) Error() string {
	return fmt.Sprintf("chp: %s refuses: %s", e.Server, visible.String(e.Reason))
}

// ChangeCluster asks the leader of a cluster, at tcp://host:P, for a change, and returns when it is in force. security
// is the same as [ClientOptions.Security]. If the server refuses, the error is a [*ClusterChangeError]: it does not lead, this
// client is no administrator (ServerOptions.Admins), or the change would leave a cluster without a majority that answers.
// After another error it may have been made or not: [ServerStatus] shows which.
func ChangeCluster(ctx context.Context, server string, security sockets.Security, c ClusterChange) error {
	what, err := json.Marshal(c)
	if err != nil {
		return err
	}
	reason, err := ask(ctx, server, security, wire.AskCluster, wire.AnswerCluster, what)
	if err == nil && len(reason) > 0 {
		err = &ClusterChangeError{server, string(reason)}
	}
	return err
}

var (
	errNotNode    = errors.New("the server is not a node of a cluster")
	errBadRequest = errors.New("the request is malformed")
)

// startChange makes a change of the cluster at the request of a peer.
func (s *Server) startChange(ctx context.Context, peer *sockets.Peer, what []byte) {
	s.administer(ctx, peer, wire.AnswerCluster, "does not change the cluster", func(ctx context.Context) error {
		var c ClusterChange
		switch {
		case s.member == nil:
			return errNotNode
		case json.Unmarshal(what, &c) != nil:
			return errBadRequest
		}
		s.log.Info("changes the cluster at the request of a client", who(peer), "change", string(what))
		n := s.member.Node()
		for st := n.Status(); st.Leader == st.Node && !st.Leading; st = n.Status() { // soon it does
			if !wake.Pause(ctx, leadingPause) {
				return ctx.Err()
			}
		}
		var err error
		if c.Add != 0 {
			err = n.AddLearner(ctx, c.Add, c.Endpoint)
		}
		if err == nil && c.Promote != 0 {
			err = n.Promote(ctx, c.Promote)
		}
		if err == nil && c.Remove != 0 {
			err = n.Remove(ctx, c.Remove)
		}
		if err == nil && (c.Transfer != 0 && c.Transfer != n.Status().Leader || c.Resign) {
			err = n.Transfer(ctx, c.Transfer)
		}
		return err
	})
}

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
		Share: s.shareOf,
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
