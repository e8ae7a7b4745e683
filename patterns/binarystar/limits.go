package binarystar

import (
	"time"

	"clustermap/internal/election"
)

// MaxPayload is the limit of a payload, in bytes.
const MaxPayload = 1024

// Defaults of Options, as in the guide.
const (
	DefaultInterval = time.Second
	DefaultTimeout  = 2 * DefaultInterval
)

// leastConnect is the least time for an attempt to connect to the peer.
const leastConnect = 250 * time.Millisecond

// maxAttempts is how many attempts of Probe run at once, beside the connection of the node.
const maxAttempts = 40

// leastAttempt is the least time between two attempts of Probe.
const leastAttempt = 15 * time.Millisecond

// MaxEpoch is the highest epoch.
const MaxEpoch = election.MaxEpoch
