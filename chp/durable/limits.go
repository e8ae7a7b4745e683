package durable

import (
	"time"

	"clustermap/chp/commit"
)

// MaxEntryBytes is the maximum size of the records of one entry.
const MaxEntryBytes = commit.MaxEntryBytes

// lockPatience is how long to wait for a lock. It can outlive its owner for a moment: a
// child process that the owner started has a copy of the file until it calls exec.
const lockPatience = 100 * time.Millisecond
