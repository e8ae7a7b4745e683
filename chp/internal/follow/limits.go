package follow

import "time"

// maxAttempts bounds the attempts to connect that run at the same time.
const maxAttempts = 4

// snapshotAhead limits the memory, in bytes, of messages of a snapshot that were received
// and not yet stored: so they are still in the cache, and the same memory is used again. A
// server of this package waits meanwhile. One on libzmq would drop messages.
const snapshotAhead = 1 << 20

// requestWindow bounds the unanswered snapshot requests (ICANHAZ). A server of this
// package answers them in order and finds the records of all waiting requests in one
// walk through the map. The window is below the server's snapshot.MaxRequests. Other servers get
// one request at a time.
const requestWindow = 128

const (
	// deletionBytes is the memory of a deletion, without its key.
	deletionBytes = 64

	// The memory of deletions is bounded by maxDeletedBytes, or by deletionsPerKey bytes
	// for each key of the snapshot so far if that is more: a large map takes long to join,
	// and more keys are deleted meanwhile. But tiny keys must not make it larger than a map.
	maxDeletedBytes = 64 << 20
	deletionsPerKey = 128
)

// waitingShare is the part of the bytes of KVSYNCs that wait for the index that KVPUBs may
// have beside them.
const waitingShare = 4

// mergeBatch is the number of records that mergeInto applies at a time.
const mergeBatch = 256

// tidyPortions is the number of portions at a time: some milliseconds.
const tidyPortions = 32

// Waits after sessions that ended because this client was too slow.
const (
	relapseSoon  = 30 * time.Second // a session that ends sooner can be a relapse
	relapseFirst = 250 * time.Millisecond
	relapseMost  = 30 * time.Second
	relapseLarge = 4 // relapses for which the first map counts that is too large

	// relapseBytes is the least number of bytes that arrive at a client that cannot keep
	// up: fewer fit in the buffers of the operating systems.
	relapseBytes = 4 << 20
)

// While attempts to connect run, an attempt at the next server begins each time
// SyncTimeout/shares has passed.
//
// When all servers have been tried, further attempts begin after a quarter of
// SyncTimeout, then a half, then all of it. An attempt can be stuck on a dead
// connection although the server is reachable. But most likely the server is busy
// because all of its clients come at once, and each abandoned attempt adds work.
const (
	shares     = 16
	shareAgain = 4 // SyncTimeout/shareAgain before the first further attempt
	doublings  = 2
)

// watchTicks is the number of ticks in a limit. Silence is detected at most one tick
// after the limit.
const watchTicks = 8

// patience is the number of limits for which a server that is alive may be silent.
const patience = 6

// Waits between sessions.
const (
	backOffFirst = 50 * time.Millisecond
	backOffMost  = 500 * time.Millisecond
)

// settled is how long a session must have been ACTIVE for the next failure to count as
// the first.
const settled = time.Second

// A jump in the sequences of another implementation means that updates are missing, or
// that the server counts in steps. A new snapshot restores missing updates, but does
// not help in the other case, so the client must not fetch one for every update.
const (
	resyncFirst = time.Second // between the first two snapshots
	resyncMost  = time.Minute
)

// Waits between rounds of servers that answer that they are not active: short at first, so
// that a pair fails over quickly.
const (
	standbyFirst = 50 * time.Millisecond
	standbyMost  = 250 * time.Millisecond
)

// closeLinger is how long an uplink that closes tries to send what is queued.
const closeLinger = time.Second

// askAgain is how long a client waits for the answer to a question before it asks again: a server
// drops an answer for which the connection has no room.
const askAgain = time.Second

// maxPartial bounds what a watch that begins in the past holds of a transaction that has not come
// as a whole: more than a server makes of one (txn.MaxSize).
const maxPartial = 4 << 20

// leaseAgain is how long a client waits for what a server says of leases before it asks again. It is short, as
// leases may be; a server that may be cut off does not answer.
const leaseAgain = 500 * time.Millisecond
