package cluster

import (
	"errors"
	"fmt"
	"strings"

	"clustermap/chp/commit"
)

// Errors of a node. They are wrapped; use [errors.Is].
var (
	// ErrNotLeader means that this node does not lead, or not in the term of a proposal. The
	// error is a [*NotLeaderError].
	ErrNotLeader = errors.New("cluster: not the leader")
	// ErrClosed means that the node was closed.
	ErrClosed = errors.New("cluster: closed")
	// ErrFull means that more than twice Options.RoomBytes are under way. Room waits for less.
	ErrFull = errors.New("cluster: too many proposals under way")
	// ErrTooLarge means that an entry exceeds the limit of a log.
	ErrTooLarge = commit.ErrTooLarge
	// ErrForeign means that the directory belongs to another node or another cluster. The
	// error is a [*ForeignError].
	ErrForeign = errors.New("cluster: the directory is another's")
	// ErrBusy means that another change of the members is under way.
	ErrBusy = errors.New("cluster: a change of the members is under way")
	// ErrMajority means that fewer members than a majority answer, or would be left by a change. The
	// error is a [*MajorityError].
	ErrMajority = errors.New("cluster: no majority answers")
	// ErrUnknown means that what was asked for may or may not have happened: the node lost its
	// term, or was closed, before it knew.
	ErrUnknown = errors.New("cluster: outcome unknown")
	// ErrMember means that a change names a node that is not a member, or is one already.
	ErrMember = errors.New("cluster: no such change of members")
	// ErrFailed means that the log, or the engine, has failed. The node does nothing any more.
	ErrFailed = errors.New("cluster: failed")
)

// errContradiction is why raft panics, if the reason is not an error of the program.
var errContradiction = errors.New("the log of this node contradicts what other nodes know of it, as if its disk had lost what it had flushed, or the directory were a copy of an earlier time; remove the node from the cluster, and let a new one join")

// A NotLeaderError says that a node does not lead.
type NotLeaderError struct {
	Node   uint64
	Term   uint64 // of the node
	Leader uint64 // as far as the node knows; 0 if it knows none, or does not lead any more soon
}

func (e *NotLeaderError) Error() string {
	if e.Leader == 0 {
		return fmt.Sprintf("cluster: node %d does not lead, and knows no leader in term %d", e.Node, e.Term)
	}
	return fmt.Sprintf("cluster: node %d does not lead in term %d; node %d does", e.Node, e.Term, e.Leader)
}

// Is reports whether target is ErrNotLeader.
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotLeader }

// A ForeignError says whose directory it is.
type ForeignError struct {
	Dir                  string
	Node, WantNode       uint64
	Cluster, WantCluster string
}

func (e *ForeignError) Error() string {
	if e.Cluster != e.WantCluster {
		return fmt.Sprintf("cluster: directory %s has data of cluster %s, not of %s", e.Dir, e.Cluster, e.WantCluster)
	}
	return fmt.Sprintf("cluster: directory %s has data of node %d, not of %d", e.Dir, e.Node, e.WantNode)
}

// Is reports whether target is ErrForeign.
func (e *ForeignError) Is(target error) bool { return target == ErrForeign }

// A MajorityError says which members do not answer, so that a change cannot be made, or would leave
// too few.
type MajorityError struct {
	Need    int      // voters that a majority has
	Missing []uint64 // voters that do not answer
	Names   []string // of Missing: their addresses
}

func (e *MajorityError) Error() string {
	var who []string
	for i, id := range e.Missing {
		who = append(who, fmt.Sprintf("node %d (%s)", id, e.Names[i]))
	}
	if len(who) == 0 {
		return "cluster: the change would leave no voter"
	}
	return fmt.Sprintf("cluster: the change needs %d voters that answer, before it and after it, and there are too few: missing %s", e.Need, strings.Join(who, ", "))
}

// Is reports whether target is ErrMajority.
func (e *MajorityError) Is(target error) bool { return target == ErrMajority }
