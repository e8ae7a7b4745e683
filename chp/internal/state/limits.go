package state

import "time"

// MaxReigns bounds the reigns that are remembered, including the newest. Reigns without
// an update are not remembered.
const MaxReigns = 256

// sectionSize is the size of a section of records in it.
const sectionSize = 256 << 10

// MaxLeases bounds the leases in a map, over all clients. Beyond it none is granted, as in a full map.
const MaxLeases = 1 << 20

// leaseRetry is after how long the end of a lease that was due is tried again, if it is not in the map:
// that waits for the log or the other server.
const leaseRetry = time.Second

// interimShare bounds the distance of an interim to the reign before, which is random, to
// a part of what is left in the term. So there is room for thousands of them.
const interimShare = 128

// What Unused skips where the clock is behind: more than a server publishes that another one, or
// a disk, has not got, and so much more that two servers do not meet, in units of 2^20 for each
// millisecond a quarter of an hour.
const (
	skipLeast  = 1 << 32
	skipRandom = 1 << 40
)

// maxTerm and maxSequence bound what another server may say: terms rise by one, and
// sequences count from the time (firstSequence), so higher ones are damaged or forged.
// There is as much room above.
const maxTerm = 1 << 39

const maxSequence = 1 << 62

// MaxStart bounds the sequence at which a server begins because of the time, so that one
// whose clock is centuries ahead does not make sequences that the other one refuses.
const MaxStart = maxSequence - 1<<50
