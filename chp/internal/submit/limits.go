package submit

import "clustermap/internal/buf"

// stageSize is the size of a stage in bytes, unless one update is larger. A client with
// a small SendQueue has smaller stages.
const stageSize = buf.Large

// Lent is the size of updates in bytes from which an Uplink lends them to a socket instead
// of copying them: a queue must not keep many times the memory that it counts.
const Lent = stageSize / 4

// aloneBytes is the size of the largest batch that push sends itself. With larger ones
// it is better that two goroutines share the work.
const aloneBytes = 8 << 10

// codesAhead is the number of UUIDs computed at a time, which costs less than one by one.
const codesAhead = 32
