package queue

import (
	"time"

	"clustermap/internal/buf"
)

const (
	// FullStage is how far a stage is filled, unless one message is larger: as
	// much as one write is good for, and little enough to be in the cache still
	// when it is written.
	FullStage = 512 << 10
	// largeStage is the size from which a stage is used again only for messages as large:
	// more than comes of filling it in small steps.
	largeStage = 2 * FullStage
	// keepStage is the largest stage that goes back to the pool.
	keepStage = buf.Largest
)

const (
	// fullLogStage is how far a stage of the log is filled. A peer that takes
	// nothing holds on to all of the stage of which it has not read the end.
	fullLogStage = 128 << 10
	// copyRest is the most bytes that a peer which leaves the log gets by copy.
	// With more, the rest of the memory that it holds on to is little beside them.
	copyRest = 2 * fullLogStage
	// yielders is the most writers that yield when a message has woken them. With more,
	// the first writes take so long that the log grows meanwhile.
	yielders = 8
	// streamPause is the longest time between two messages of a stream that wake several
	// writers.
	streamPause = 500 * time.Microsecond
)

// leftPeer is approximately the memory, in addition to its messages, that is
// kept for a peer that has gone while some of its messages are queued.
const leftPeer = 3 << 10

// A reader that is aheadBytes ahead of the application waits aheadGrace before it
// goes on, up to the high-water mark. If the application keeps up, it then finds
// the received messages in the processor's cache instead of in memory: messages of 64 KiB
// are half as fast again. If the application does not catch up during the wait, the
// reader waits no more until the application has caught up.
const (
	aheadBytes = 2 << 20
	aheadGrace = time.Millisecond
)

const (
	// maxPongs bounds the PONGs in a head: a peer that floods PINGs and does not
	// read gets no more than this.
	maxPongs = 4 << 10
	// keepHead is the largest buffer that an empty head keeps.
	keepHead = 2 * maxPongs
)

// LendFrom is the size from which lending a run is cheaper than copying it: a
// vectored write costs more for many small pieces than the copy does.
const LendFrom = 4 << 10

// keepItems is the largest list of items that an idle connection keeps.
const keepItems = 64

// spareSpans bounds the slices that are kept: together they have room for this many
// spans.
const spareSpans = 128 << 10

const (
	// streamWrite is the size of a writer's last write from which it writes a stream. Less
	// are single messages, which must not wait.
	streamWrite = 1 << 10

	// goodWrite is how many bytes make a write worth its system calls, and waking
	// the peer for it.
	goodWrite = 256 << 10
	// maxGathers bounds how far a queue may exceed its high-water mark before a write,
	// and how long its first message waits for that.
	maxGathers = 8
)

// maxDirect is the most bytes that a sender writes itself. If the last frame of a request or
// a reply is larger, but not above maxLarge, it writes that in pieces.
const (
	maxDirect   = 16 << 10
	maxLarge    = 16 << 20
	directPiece = 128 << 10
)

const (
	// LargeMessage is the size in wire form from which Take does not copy a message.
	LargeMessage = 8 << 10
	// shelfPins bounds the memory that a message keeps beside its own.
	shelfPins = 8 << 10
	// shelfRoom is the most that is made for several small messages with their frames. The
	// runtime makes five to seven pieces of 6 KiB or a little more in one step, but a piece of
	// 8 KiB in a step of its own, and what it does for each step costs more than the copies.
	// It also rounds sizes up, by less than 1 KiB.
	shelfRoom = 6784
	// maxShelved is the largest message that shares memory with another one.
	maxShelved = 7 << 10
	// frameCost is the memory of a frame beside its bytes.
	frameCost = 24
)
