package snapshot

import (
	"time"

	"clustermap/internal/buf"
)

// MaxRequests is the number of unanswered requests that a client may have.
const MaxRequests = 256

// maxSince is how many of them may ask what came after a sequence. An answer refers to the whole
// window piece by piece: some 50 KiB.
const maxSince = 4

// Bounds of what is encoded and not yet written for one client: two parcels of the smallest
// size at least, so that one is encoded while the other is written.
const (
	minWindow   = 2 * buf.Small
	firstWindow = 2 * (32 << 10)
	maxWindow   = 4 * buf.Large

	// A window doubles when a parcel was written within windowFast, and is halved when
	// that took windowSlow.
	windowFast = 100 * time.Millisecond
	windowSlow = time.Second
)

// A run of records of at least lendRecord bytes is sent straight from the log instead of
// being copied to a parcel; while memory is short, one of at least lendShort bytes.
// The socket would copy shorter ones.
const (
	lendRecord = 16 << 10
	lendShort  = buf.Small
)

const (
	// A subtree with more than one record in denseShare, and more than denseFrom records,
	// gets no list.
	denseShare = 16
	denseFrom  = 1024

	// listAlways is the number of records that are listed even without memory for them:
	// about as much as the request itself uses.
	listAlways = 64
)

const (
	// gatherWithin bounds the wait of a request for everything for others to share a cut
	// with, while the last such cut is being encoded. Without it a thousand clients that
	// come within a second would each have a cut and an encoding of their own.
	gatherWithin = 100 * time.Millisecond

	// trimEvery is the interval at which the memory that cuts pin is checked.
	trimEvery = 250 * time.Millisecond
)
