package majordomo

import "time"

// Defaults of the options. Those of heartbeats and of a client's attempts are as in the
// guide.
const (
	DefaultHeartbeat = 2500 * time.Millisecond
	DefaultLiveness  = 3

	DefaultExpiry          = time.Minute
	DefaultMaxDeliveries   = 3
	DefaultMaxServices     = 4096
	DefaultMaxWorkers      = 16384
	DefaultMaxWaiting      = 65536
	DefaultMaxWaitingBytes = 64 << 20
	DefaultMaxBytes        = 256 << 20

	DefaultConcurrency  = 1
	DefaultAhead        = 256
	DefaultReconnect    = 100 * time.Millisecond
	DefaultReconnectMax = 2500 * time.Millisecond

	DefaultTimeout     = 2500 * time.Millisecond
	DefaultAttempts    = 3
	DefaultConnections = 16
	DefaultMaxReply    = 256 << 20
)

// MaxConcurrency is the limit of WorkerOptions.Concurrency.
const MaxConcurrency = 16384

// Limits of messages.
const (
	// MaxServiceName is the limit of a service's name, in bytes.
	MaxServiceName = 255

	maxNumber = 16 // bytes of a client's request number
)

// maxErrorText bounds the text of an error, in bytes.
const maxErrorText = 4096

// maxAhead bounds the requests that a worker may accept at a time.
const maxAhead = 1024

// Bounds on the batches and bytes of a drain, so that no peer waits for long and the
// stages stay small.
const (
	maxDrain      = 256
	maxDrainBytes = 4 << 20
)

// A stage that is fullStage bytes long is sent before the end of the drain, while it is in the
// processor's cache still. It is sent without a copy if that fills 1/lendPart of its memory,
// which a peer that does not read holds on to.
const (
	fullStage = 256 << 10
	lendPart  = 4
)

// maxScratch is the largest buffer for an answer that is kept for the next.
const maxScratch = 256 << 10

// Bounds on the memory that is kept for reuse.
const (
	maxSpareJobs  = 65536
	maxSpareData  = 4 << 10  // bytes of a job's buffer
	maxSpareBytes = 16 << 20 // of all of them
	maxSpareLanes = 4096
)

// lastBatches bounds the batches that are received after the end of a link.
const lastBatches = 4096

// Memory of a part besides its bytes, and of each of its frames: parts can be empty.
const (
	partCost  = 64
	frameCost = 24
)

// jobCost is what counts for a request besides its bytes, which can be few: at least the
// memory of a job and of a lane that is for it alone. clientPart is the part of
// BrokerOptions.MaxBytes that one client leaves to the others.
const (
	jobCost    = 512
	clientPart = 8
)

const mmiListedFrames = 4 // of each service in the reply of serviceList

const (
	// aheadTime is the time within which a worker should reply. A slower worker is
	// sent fewer requests ahead, so that they do not wait while another worker is
	// idle. It includes the transfers: with a shorter time, a loaded machine would
	// send smaller and smaller batches, which cost more.
	aheadTime = 20 * time.Millisecond

	// aheadBytes bounds the bytes of the requests of a worker that is sent ahead.
	aheadBytes = 1 << 20
)

// runPart is the divisor of the window that gives the length of a run. A request waits
// for those before it in its run for an eighth of aheadTime at most, even if another
// worker is idle.
const runPart = 8

// giveBackTime is the time that a handler may run before the worker gives back the
// requests that were sent ahead.
const giveBackTime = aheadTime
