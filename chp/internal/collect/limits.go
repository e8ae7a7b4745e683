package collect

import "time"

// Bounds of the clients without connections that are remembered, because one that comes
// back is still to be told what was refused.
const (
	maxGone  = 4096
	goneTime = 10 * time.Minute
)

// requestUpdate is about the size of an update in a request, for limits of updates.
const requestUpdate = 128

const (
	// maxPending bounds the bytes of refusals kept for one client, maxPendingTotal for all clients.
	maxPending      = 4 << 20
	maxPendingTotal = 64 << 20
	// maxAnswers bounds the answers to requests that wait until they are published, in bytes.
	maxAnswers = 4 << 20
	// notifyPortion is the number of refusals sent to a connection at a time.
	notifyPortion = 1024
)
