package wire

import (
	"math"
	"time"
)

const (
	// earlyBytes bounds the memory of early updates; each counts as its bytes plus
	// earlyOverhead. So there are at most 65,536 of them.
	earlyBytes    = 16 << 20
	earlyOverhead = 256
	// earlyAges is the number of time-outs after which an update that a live active
	// server has not published is removed: it never will be.
	earlyAges = 2
	// maxEarlyAge is the greatest age at which an update is still applied. It bounds
	// the wait for a takeover: a client on libzmq may take ten seconds to change to
	// the other server.
	maxEarlyAge = time.Minute
)

const (
	// maxSeen bounds each generation.
	maxSeen = 1 << 16
	// seenAges is the lifetime of a generation, in time-outs.
	seenAges = 10
)

// Bounds of the specifications of a question what came after a sequence. A server of a pair that
// is not active keeps the questions of all clients.
const (
	maxSinceSpecs = 64
	maxSinceBytes = 4 << 10
)

// maxSentUpdates bounds sentUpdates, to about 20 MB. Older updates are forgotten and
// become uncertain.
const maxSentUpdates = 1 << 18

const (
	// mostGrace is how long a client waits for its subscriptions to take effect if the
	// server answers no PINGs. The connection exists by then, so the subscriptions
	// need only half a round trip.
	mostGrace = time.Second

	// leastGrace is how long it waits after the answer. libzmq answers in its I/O
	// thread; the thread that publishes checks for subscriptions every millisecond or
	// so, before it sends.
	leastGrace = 50 * time.Millisecond
)

// LargestValue is the largest value that a server may be configured to take, in bytes. On 32-bit
// systems several values of that size must fit in the address space.
const LargestValue = min(1<<30, math.MaxInt/8+1)

// MaxLeases bounds the leases in a question, so that the server renews them while updates wait no longer than
// for a usual batch.
const MaxLeases = 1024
