package peerlog

import "time"

// Limits of a log: for each peer and kind of event a line at once, and then at intervals
// that double, with the number of events since.
const (
	first = 10 * time.Second
	most  = 10 * time.Minute
	size  = 4096 // peers and kinds

	maxDenied = 32 // names of one address that are told apart within first
)
