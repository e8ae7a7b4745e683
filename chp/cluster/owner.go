package cluster

import (
	"iter"

	"clustermap/chp/commit"
)

// An Owner has the state that a cluster replicates. One goroutine calls its methods, one after
// the other, in the order of the log: what it is told of leadership is in order with what it
// is told of entries.
type Owner interface {
	// Committed gets entries that are committed, in order. Indexes increase, and not always by
	// one: entries of the cluster itself are left out. Neither the slice nor the bytes may be
	// changed; the slice is the caller's, the bytes may be kept.
	Committed([]Committed)
	// Lost says that proposals of this node are not committed. If known is false it is unknown
	// whether they are: a snapshot that has replaced this node's state may have them, and after
	// Close they may still be. Each proposal is either lost or committed, once.
	Lost(all []Position, known bool)
	// Changed says what has changed in who leads.
	Changed(Status)
	// Image returns a copy of the state, as it is after the last entry of Committed or Restore.
	Image() (Image, error)
	// Restore replaces the state.
	Restore(*Snapshot) error
}

// A Committed is an entry that is committed; its Epoch is the term.
type Committed struct {
	commit.Entry
	Own bool // proposed by this node, since it was opened
}

// An Image is a copy of a state.
type Image interface {
	// Sequence is the last sequence of the state.
	Sequence() uint64
	// Entries returns the state in pieces of about 256 KiB. Indexes are ignored. What is yielded
	// is valid until the next piece.
	Entries() iter.Seq[commit.Entry]
	// Release is called once, when it is not needed any more.
	Release()
}

// A Snapshot is the state to begin with.
type Snapshot struct {
	At       Position // of the last entry in it
	Sequence uint64
	log      Log
}

// Entries calls fn with the pieces of the image. Their bytes are valid until fn returns.
func (s *Snapshot) Entries(fn func(commit.Entry) error) error {
	return s.log.State(func(e commit.Entry) error {
		if e.Kind == KindMembers {
			return nil
		}
		return fn(e)
	})
}

// A Role is what a node does in its cluster.
type Role string

// Roles of nodes.
const (
	RoleLeader    Role = "leader"
	RoleFollower  Role = "follower"
	RoleCandidate Role = "candidate"
	RoleLearner   Role = "learner"
)

// A Status says who leads.
type Status struct {
	Node   uint64
	Term   uint64
	Role   Role
	Leader uint64 // 0 if none is known
	// Leading means that this node leads in this term and its owner has all that came before:
	// it may propose. It ends while the term is handed over; if that fails, it is set again in
	// the same term, in which the proposals made before are still under way.
	Leading bool
}
