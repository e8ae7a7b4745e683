package chp

import (
	"math"
	"time"

	"clustermap/chp/commit"
)

// Defaults of [ServerOptions].
const (
	// DefaultPort is the port P of the guide's servers.
	DefaultPort = 5556

	DefaultHeartbeatInterval = time.Second
	DefaultMaxValueSize      = 16 << 20
	DefaultSubscriberQueue   = 64 << 20
	DefaultSlowestIntake     = 16 << 20
	DefaultSubscriberMemory  = 512 << 20
	DefaultSnapshotMemory    = 256 << 20
	DefaultRetainBytes       = 64 << 20
	DefaultRetainTime        = 10 * time.Minute
	DefaultMaxClients        = 10_000
	DefaultSnapshotTimeout   = 30 * time.Second
	DefaultServerHandshake   = 10 * time.Second
	DefaultExpiryGrace       = 10 * time.Second
	DefaultHistoryBytes      = 64 << 20
)

// Defaults of [ClientOptions].
const (
	DefaultHeartbeatTimeout = 5 * time.Second
	DefaultSyncTimeout      = 5 * time.Second
	DefaultSendQueue        = 4 << 20
	DefaultWatchQueue       = 64 << 20
	DefaultMaxMapBytes      = 1 << 30
)

// maxLoggedValue is the maximum for a server with a log, which bounds the size of an
// entry.
const maxLoggedValue = commit.MaxEntryBytes / 2

// Bounds that are not options.
const (
	snapshotWindow       = 128 << 10 // bytes of snapshots queued per client
	collectorWindow      = 1 << 20   // bytes of updates received ahead of the sequencer, per client
	collectorTotal       = 64 << 20  // the same of all clients; and bytes of updates that have arrived in part
	maxRequestsBytes     = 16 << 20  // bytes of unanswered requests of all clients; of partial ones, and of partial subscriptions
	maxRequestSize       = 64 << 10  // bytes of a snapshot request or a subscription
	maxSubscriptions     = 10_000    // topics per client
	maxSubscriptionBytes = 128 << 20 // memory of the topics of all clients
	maxOverhead          = 128 << 10 // bytes of an update without its value
	closeLinger          = time.Second
)

// maxSubtrees keeps a client below the number of subscriptions that a server accepts.
const maxSubtrees = 8192

// maxBatch bounds a batch in bytes, because a span has offsets of 32 bits.
const maxBatch = 1 << 30

// historyAnswer is about how many bytes of versions an answer has: the client asks for more. One
// version may be larger.
const historyAnswer = 1 << 20

// maxAnswer bounds the bytes of an answer.
const maxAnswer = 64 << 10

// preloadBatch is the approximate number of bytes that preload applies at a time.
const preloadBatch = 64 << 10

// The stripes of a Map: so many that writers on different cores rarely wait for the same one.
const (
	stripesPerCore = 4
	maxStripes     = 1024
)

// mapSegment is small: a Map has many stripes, and each has a log of its own.
const mapSegment = 8 << 10

// maxMapEntry bounds key and value of a Map together: offsets have 32 bits.
const maxMapEntry = math.MaxInt32 - 64

// leastViewSlots is the size of a new viewTable.
const leastViewSlots = 16

// keepSingle is the largest single that is kept, in bytes.
const keepSingle = 64 << 10

// firstHandshake is how long a server has for the handshake before ask connects again. Each
// time it has twice as long: it may be far away, or busy.
const firstHandshake = time.Second

// replayEvery is how often ServerOptions.OnReplay is called.
const replayEvery = 250 * time.Millisecond

// goodbye bounds the wait for room for the deletion.
const goodbye = time.Second

// handoverTimeout bounds a handover.
const handoverTimeout = 30 * time.Second

// transferTimeout bounds how long a node of a cluster that ends waits until another one leads.
const transferTimeout = 2 * time.Second

// maxChanges bounds the changes of a cluster that are asked for at a time.
const maxChanges = 16

// leadingPause is the pause before a node that has just been elected is asked again whether it can change the cluster.
const leadingPause = 10 * time.Millisecond

// minSecret is the smallest PairOptions.Secret in bytes.
const minSecret = 16

// leastLease is the shortest time to live of a lease: shorter ones end before they can be renewed.
const leastLease = 100 * time.Millisecond

// leaseMargin is the part of its time to live that the holder of a lease has less than the server: their clocks may
// run at different rates, and who learns that it has ended needs time to stop.
const leaseMargin = 10

// leaseSlack is the part of its time to live that a lease is renewed early, together with others.
const leaseSlack = 12

// Bounds of answers about clients: how many the server looks at in one go and how many bytes of
// them an answer has, which must fit into maxAnswer with what one client takes; how many subtrees of a
// client; and how many clients an asker takes.
const (
	clientsAtATime     = 128
	clientsAnswerBytes = 32 << 10
	mostSubtrees       = 8
	mostListed         = 1 << 20
)

// mostHot bounds the keys in an answer to which are hot: with base64 and their counts they must fit
// into maxAnswer.
const mostHot = 100
