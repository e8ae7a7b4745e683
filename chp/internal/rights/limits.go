package rights

import "time"

const (
	// LeastUpdates and LeastBytes are the lowest limits of a client, a second. What is read from a connection at a
	// time, up to 128 KiB, cannot be given back, and a connection that is not read for longer than mostPause would look
	// broken to its client.
	LeastUpdates = 1000
	LeastBytes   = 64 << 10
	// mostPause bounds how long a connection is not read at a time.
	mostPause = 2 * time.Second
	// burst is how long a client may have sent nothing and still send the more afterwards.
	burst = 250 * time.Millisecond
	// maxIdle bounds the clients without connections of which is remembered what they have sent.
	maxIdle = 4096
)
