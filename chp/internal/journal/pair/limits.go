package pair

const (
	// tailBytes bounds the updates in the tail, see Journal.Bound.
	tailBytes = 64 << 20
	// batchBytes is the memory of a batch without its updates.
	batchBytes = 128
)

// portion is the number of bytes of the tail that are sent at a time.
const portion = 1 << 20

// CaughtUp is the number of updates that a follower may be behind for updates to wait
// for it from then on. If it has the map and stays further behind for the time-out,
// updates wait for it all the same: otherwise it would never catch up with clients that
// write as fast as it can read.
const CaughtUp = 1 << 14
