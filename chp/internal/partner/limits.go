package partner

import "time"

// LooksPerTimeout is the number of looks at the other server per time-out.
const LooksPerTimeout = 20

// quietLooks is the number of looks after which silence is suspicious. Updates wait
// for the other server for longer, and with the default options an idle client of this
// package sends something sooner.
const quietLooks = LooksPerTimeout * 3 / 4

const (
	// maxParked bounds the parked requests, and maxParkedEach those of one client.
	// Beyond maxParked the oldest is dropped.
	maxParked     = 4096
	maxParkedEach = 64
)

// A server that has heard nothing of the other one since it started may become active
// after startTimeouts times the time-out, and not before startLeast.
const (
	startTimeouts = 3
	startLeast    = time.Second
)

// followAgain is the wait of a passive server before it reconnects. The wait doubles,
// up to followAgainMost, each time a copy of the map was not completed: the cause may
// be this server's log, and every copy is work for the active server.
const (
	followAgain     = 50 * time.Millisecond
	followAgainMost = 5 * time.Second
)

// byeTime bounds the time that a server that ends spends on sending its BYE.
const byeTime = 100 * time.Millisecond

// followWindow bounds the bytes that a passive server receives before it applies them.
const followWindow = 4 << 20

const (
	// partialRoom bounds a batch that arrives in parts, in bytes beyond the largest value: one
	// update with that, or many small ones.
	partialRoom = 16 << 20
	// keepPartial is the largest buffer for such batches that is kept.
	keepPartial = 1 << 20
)

// maxRequester bounds the text about a requester in the log.
const maxRequester = 128

// basePortion is the number of bytes of the map that are sent at a time.
const basePortion = 64 << 10

// drainLeast is the least time without progress after which a handover fails.
const drainLeast = time.Second

const (
	// drainLook is the wait between two looks at a follower during a handover. The time between
	// them counts up to drainGap: a busy machine looks later than it should.
	drainLook = time.Millisecond
	drainGap  = 25 * time.Millisecond
)

// shutdownTimeout bounds the handover of a server that ends.
const shutdownTimeout = 8 * time.Second

// handoverRest is the least number of time-outs between two handovers that clients
// request.
const handoverRest = 2

// vigilMost is the longest time between two lines that say that a backup waits for its primary.
const vigilMost = 10 * time.Minute
