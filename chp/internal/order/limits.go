package order

import "time"

const (
	// MaxHeld bounds the held updates, in bytes; beyond it the server accepts no more.
	MaxHeld = 16 << 20
	// maxSpare bounds the number of batches that are kept to reuse their slices.
	maxSpare = 64
	// heldBytes is the memory of a batch without its updates, and spanBytes that of a
	// span.
	heldBytes = 144
	spanBytes = 16
)

// uniqueLast is the number of updates that a node of a cluster remembers of clients which do not number them: that many
// may come by one node before they come by another one.
const uniqueLast = 64 << 10

// LocalPart bounds the part of a batch that is applied under one hold of the
// sequencer's mutex, in bytes: as much as a client's connection delivers at a time, so
// that clients and heartbeats do not wait long.
const LocalPart = 128 << 10

// keepOwn is the largest capacity of scratch.own that is kept.
const keepOwn = 4096

// keepStamped is the largest capacity of stamper.wire that is kept.
const keepStamped = 256 << 10

const (
	// expirePortion is the number of deadlines that are checked under one hold of the
	// mutex.
	expirePortion = 2048
	// expireBytes is the size from which on no other lease ends under the same hold.
	expireBytes = 256 << 10
	// keepExpiry is the largest scratch of Expire that is kept.
	keepExpiry = 64 << 10
)

const (
	// checkpointBytes is the least growth of the log, in bytes, that causes a
	// checkpoint. With a larger map the log grows by the size of the map first. That
	// bounds both the cost of checkpoints and the log that a restart replays.
	checkpointBytes = 64 << 20

	// checkpointLook is the interval at which the size of the log is checked.
	checkpointLook = time.Second

	// checkpointWait is the longest time after which a checkpoint that has failed is tried
	// again: there may be space on the disk again.
	checkpointWait = time.Minute
)

const (
	// PacerLook is after how many bytes the queues are checked, and pacerRest the
	// shortest time between two checks.
	PacerLook = 256 << 10
	pacerRest = 2 * time.Millisecond
	// PaceFrom is the fill level from which batches are delayed.
	PaceFrom = 0.5
	// pacerLeast is the shortest delay worth a timer, and pacerMost the longest between
	// two checks.
	pacerLeast = time.Millisecond
	pacerMost  = 100 * time.Millisecond
)

// ttlTick is the precision of times to live.
const ttlTick = 10 * time.Millisecond

// standstill is how late RunClock is if this process did not run. After a shorter time, from lateFrom on, only leases get it
// back: they may have been renewed meanwhile.
const (
	standstill = time.Second
	lateFrom   = 5 * ttlTick
)

// withoutRequests is the number of held batches after the last request from which on the newest
// update of each held key is no longer kept: that takes time for each update.
const withoutRequests = 1024

// mostAnswers is the size in bytes from which on answers are sent before more requests are
// judged: they can have values.
const mostAnswers = 256 << 10

// hotIdle is how long updates of keys are counted after the last question which are hot.
const hotIdle = 15 * time.Second
