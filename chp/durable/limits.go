package durable

import (
	"time"

	"clustermap/chp/commit"
)

// MaxEntryBytes is the maximum size of the records of one entry.
const MaxEntryBytes = commit.MaxEntryBytes

// segmentBytes is the size of a segment. The current segment and the next one are
// preallocated, so the smallest log takes twice this much of the disk.
const segmentBytes = 16 << 20

// writeBytes is the size of a writer's buffer, and the maximum of its writes. Large writes
// at multiples of their size cost the system less, and the buffer still fits into the cache
// of a processor.
const writeBytes = 256 << 10

// lockPatience is how long to wait for a lock. It can outlive its owner for a moment: a
// child process that the owner started has a copy of the file until it calls exec.
const lockPatience = 100 * time.Millisecond
