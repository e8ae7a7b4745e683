package cluster

import (
	"go.etcd.io/raft/v3/raftpb"

	"clustermap/chp/commit"
)

// Kinds of messages between nodes.
const (
	KindRaft byte = 1 // a message of raft, other than a snapshot
	KindPart byte = 2 // a part of a snapshot
	KindAck  byte = 3 // how much of a snapshot the other node has
	KindNote byte = 4 // of the owner of one node for that of the other: see Node.Tell
)

// A Message goes from one node to another. Its bytes must not be changed: others refer to
// them.
type Message struct {
	Kind     byte
	From, To uint64

	// Raft is the message of raft; in the part with the number 0, the one with the snapshot's
	// index, term and members.
	Raft raftpb.Message

	Stream uint64       // which snapshot; of an election, the last index known to be committed
	Part   uint64       // number of the part, or how many parts were taken; of an election, the term of that index
	Last   bool         // no part follows
	Failed bool         // the other node does not take this snapshot
	Entry  commit.Entry // of a part after the first
	Note   []byte       // of KindNote
}

// A Transport carries messages between nodes. It may lose, repeat and reorder them.
type Transport interface {
	// Start calls receive with each message that arrives, in goroutines of the transport.
	Start(receive func(*Message)) error
	// Peers sets who can be sent to: addresses by node.
	Peers(map[uint64]string)
	// Send queues a message, and never waits. It reports false if it dropped it, as it
	// does if too much waits for the peer already.
	Send(*Message) bool
	// Close ends all; it waits until receive is not called any more.
	Close() error
}
