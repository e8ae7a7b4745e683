package httpkv

import "time"

// Defaults of [Options].
const (
	DefaultMaxBody        = 16 << 20
	DefaultMaxStreams     = 256
	DefaultMaxStreamsEach = 32
)

const (
	maxBodies  = 64 << 20 // bytes of bodies that have arrived, and of large values that are being sent, over all requests
	smallBody  = 16 << 10 // a body, or a value, up to here does not count
	maxLists   = 4        // requests that read the whole map at a time
	maxRates   = 4096     // addresses whose rates are known; others share one
	maxETags   = 64       // entity tags in a condition
	writeChunk = 64 << 10 // of what is sent at a time
	maxLease   = 4 << 10  // bytes of a request for a lease
	maxHeaders = 64       // properties of a key in headers; it may have more, which are in lines of JSON
	minToken   = 16       // characters of a token: shorter ones can be guessed
)

// patience is how long a request may wait: for a peer that sends or takes nothing, and for an update to
// be published.
const patience = 10 * time.Second

// leastRate is what a peer must send of a body, and take of a list or of the state with which a watch
// begins, in bytes per second behind patience: those hold memory of the map.
const leastRate = 64 << 10

const (
	heartbeat = 15 * time.Second // between two comments in a stream that is quiet
	lookAgain = time.Second      // between two looks whether a stream may go on
)
