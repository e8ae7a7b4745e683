package admin

import "time"

// checkTimeout is how long a server may take to answer a check or a request for its metrics.
// It holds the lock that these need for a batch of updates at a time only.
const checkTimeout = 2 * time.Second

// maxProbes is how often the server is asked at a time, for metrics, checks or its status: metrics need a look at all
// connections. Further requests wait for their turn, for checkTimeout at most, and are then answered with 503. Who looks at the
// page of a server makes three at once.
const maxProbes = 4

// The times of flushes, in seconds: from a fast disk to one that stalls.
var syncBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// maxClients is how many clients /clients lists.
const maxClients = 1000
