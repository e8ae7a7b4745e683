package raft

import (
	"context"
	"iter"
	"time"

	"clustermap/chp/commit"
)

// A Node is this server's part of a cluster: a log that all nodes have, in which the leader puts
// entries. All methods are safe for concurrent use.
type Node interface {
	// Propose appends an entry if this node leads in a term: the one that Owner.Changed was told
	// with Leading. It returns the entry's index, and does not wait. The bytes are copied. What becomes of the entry the
	// owner hears once, in Committed with Own or in Lost.
	Propose(term uint64, e *commit.Entry) (index uint64, err error)
	// Room waits until another entry can be proposed, and returns the error of a node that has failed.
	Room(ctx context.Context) error
	// ReadIndex returns when the owner has all that was committed anywhere before the call.
	ReadIndex(ctx context.Context) error
	// Save writes an image of the owner's state in place of the entries up to it.
	Save(ctx context.Context) error
	// Tell sends a note to the owner of another node, in order with other notes to it. It does not wait, and reports
	// false if the note is dropped. One may get lost also otherwise.
	Tell(to uint64, note []byte) bool
	// AddLearner adds a node without a vote, Promote gives it one, and Remove removes a node; only the leader
	// can. Each returns when the change is in force.
	AddLearner(ctx context.Context, node uint64, address string) error
	Promote(ctx context.Context, node uint64) error
	Remove(ctx context.Context, node uint64) error
	// Transfer hands the term over to another node, or to the one that has most of the log if to is 0, and
	// returns when this node does not lead any more.
	Transfer(ctx context.Context, to uint64) error
	// Status says who leads, as far as this node knows.
	Status() Status
	// Members returns who takes part.
	Members() []Member
	// Failed returns a channel that is closed when the node has failed.
	Failed() <-chan struct{}
	// Close ends the node, and returns the error with which it has failed.
	Close() error
}

// An Owner has the state that the nodes of a cluster replicate. One goroutine calls its methods, but for Note, one
// after the other, in the order of the log.
type Owner interface {
	// Committed gets entries that are committed. The bytes may be kept; the slice is the caller's.
	Committed([]Entry)
	// Lost says that the oldest proposals of this node whose fate was open are not committed, so many; if known is
	// false, it is unknown whether they are.
	Lost(n int, known bool)
	// Changed says what has changed in who leads.
	Changed(Status)
	// Image returns a copy of the state, as it is after the last entry of Committed or Restore.
	Image() (Image, error)
	// Restore replaces the state.
	Restore(Snapshot) error
	// Note gets what the owner of another node has told this one, in any goroutine. It must not wait, and owns
	// the bytes.
	Note(from uint64, note []byte)
}

// An Entry is an entry that is committed; its Epoch is the term.
type Entry struct {
	commit.Entry
	Own bool // proposed by this node, since it was opened
}

// An Image is a copy of a state.
type Image interface {
	// Sequence is the last sequence of the state.
	Sequence() uint64
	// Entries returns the state in pieces, whose indexes are ignored. What is yielded is valid until the next
	// piece.
	Entries() iter.Seq[commit.Entry]
	// Release is called once.
	Release()
}

// A Snapshot is the state to begin with.
type Snapshot interface {
	// Sequence is the last sequence of the state.
	Sequence() uint64
	// Entries calls fn with the pieces of the image. Their bytes are valid until fn returns.
	Entries(fn func(commit.Entry) error) error
}

// A Status says who leads.
type Status struct {
	ID     string // of the cluster
	Node   uint64
	Term   uint64
	Role   string // leader, follower, candidate or learner
	Leader uint64 // 0 if none is known
	// Leading means that this node leads in this term and its owner has all that came before: it may propose. It ends
	// while the term is handed over; if that fails, it is set again in the same term.
	Leading bool
}

// A Member is a node of a cluster.
type Member struct {
	Node    uint64
	Address string
	Learner bool // it has no vote
	Active  bool // it has answered of late; only the leader knows
	Heard   bool // it has run: the node that was asked has heard of it at some time
	// Silence is how long ago that was, or -1 if it was in no message of this run.
	Silence time.Duration
	Match   uint64 // up to which index of the log it is known to have all; only the leader knows
}
