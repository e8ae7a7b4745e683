package cluster

import "time"

// DefaultElectionTimeout is the default of Options.ElectionTimeout.
const DefaultElectionTimeout = 300 * time.Millisecond

// electionTicks is the number of ticks of an election time-out. A leader sends a heartbeat at
// each tick; ten may get lost in a row before its followers look for another.
const electionTicks = 10

// DefaultTailBytes is the default of Options.TailBytes: what a follower may be behind without
// a snapshot. It is also kept twice as long while one is sent, for what follows it.
const DefaultTailBytes = 64 << 20

// DefaultRoomBytes is the default of Options.RoomBytes. At 64 KiB an entry it is 256 entries,
// eight times what a disk and two followers need to be busy all the time.
const DefaultRoomBytes = 16 << 20

// maxEntryBytes is the maximum size of the records of an entry, as in [commit.MaxEntryBytes].
// It must fit into a message.
const maxEntryBytes = 64 << 20

// entryBytes is what an entry without records counts, so that a bound in bytes also bounds
// empty ones.
const entryBytes = 64

// maxMessageBytes is how much a leader sends a follower in one message, about. A larger one
// would delay what comes after it.
const maxMessageBytes = 1 << 20

// maxInflightBytes and maxInflight are how much a leader sends a follower ahead of what that
// has acknowledged.
const (
	maxInflightBytes = 32 << 20
	maxInflight      = 4096
)

// applyBytes is how much is passed to the owner at a time, about.
const applyBytes = 4 << 20

// windowBytes is how much of a snapshot is on its way to a follower at a time, and what each
// of both sides keeps of it in memory, about: parts are 256 KiB large.
const windowBytes = 4 << 20

// maxStreams is how many followers a leader sends a snapshot at a time; others wait.
const maxStreams = 4

// neverInterval is how often a log is flushed whose policy leaves that to the system: its files stay
// open until they are.
const neverInterval = 10 * time.Second

// streamTicks is after how many ticks without an answer a leader gives a snapshot up, and a
// follower what it has of one; half of that is when the leader sends again what it has sent.
const streamTicks = 10 * electionTicks

// readTicks is after how many ticks without an answer the question for a read index is asked
// again: messages may be lost.
const readTicks = 5

// maxMembers bounds the members of a cluster, with learners.
const maxMembers = 1024

// maxGone bounds the nodes that were removed whose numbers are known.
const maxGone = 4096

// maxAddress bounds the address of a member, in bytes.
const maxAddress = 256

// memberBytes is the size of a slot of the file of a member.
const memberBytes = 512 << 10

// DefaultQueueBytes is the default of SocketOptions.QueueBytes: twice what a leader sends ahead.
const DefaultQueueBytes = 2 * maxInflightBytes

// maxHeadBytes bounds the head of a message: the members of a snapshot, or maxMessageBytes of
// empty entries.
const maxHeadBytes = 4 << 20

// Times of the sockets, if their options do not have them: a peer that comes back is to hear its
// leader before its election time-out ends.
const (
	reconnectInterval    = 20 * time.Millisecond
	reconnectIntervalMax = 200 * time.Millisecond
	heartbeatInterval    = time.Second
)
