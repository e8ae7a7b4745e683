package titanic

import "time"

// Defaults of Options and ClientOptions.
const (
	DefaultConcurrency     = 32
	DefaultPerService      = 16
	DefaultAttemptTimeout  = 5 * time.Minute
	DefaultRetryMin        = 100 * time.Millisecond
	DefaultRetryMax        = 5 * time.Second
	DefaultRequestTTL      = 7 * 24 * time.Hour
	DefaultReplyTTL        = 7 * 24 * time.Hour
	DefaultMaxRequestBytes = 8 << 20
	DefaultMaxReplyBytes   = 8 << 20
	DefaultMaxRequests     = 1_000_000
	DefaultMaxBytes        = 1 << 30
	DefaultMaxServices     = 4096
	DefaultMaxHeldBytes    = 256 << 20

	DefaultPollMin = 20 * time.Millisecond
	DefaultPollMax = time.Second
)

// MaxMessageBytes is the limit of MaxRequestBytes and MaxReplyBytes. bbolt can store
// messages of this size, also on 32-bit systems.
const MaxMessageBytes = 512 << 20

// MaxFrames is the limit of the frames of a request or a reply.
const MaxFrames = 1024

// maxConnections bounds the connections to a broker of another implementation.
const maxConnections = 4096

const (
	entryBytes = 64      // bytes that count for an entry besides its message
	batchBytes = 8 << 20 // bytes after which a transaction accepts no more changes
)

// The bucket reserveBucket reserves space in the file, about half a MiB. bbolt does not
// change pages in place, so deleting needs space too. On a full disk this bucket is
// deleted first. Two values fit on a page, so that the bucket consists of single pages,
// which are available wherever something was deleted.
const (
	reserveValues     = 256
	reserveValueBytes = 1900
)

// lockTimeout is how long bbolt tries to lock the file, every 50 ms. Opening a store locks
// it more than once, and a process that this one starts meanwhile has the earlier lock,
// too, until it executes its program.
const lockTimeout = 250 * time.Millisecond

// diskPause is the time during which no request is stored after the disk was full,
// because finding that out needs a search of the whole store.
const diskPause = time.Second
