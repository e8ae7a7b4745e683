package engine

import (
	"math"
	"time"

	"clustermap/internal/connection"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// MaxHandshakeCommand limits the size of READY. It leaves room for a few
// kilobytes of metadata.
const MaxHandshakeCommand = 16 << 10

// maxBatchBytes limits the bytes to which the spans of one batch refer.
const maxBatchBytes = min(1<<31, math.MaxInt)

const (
	// chunkShare is how many messages of the usual size a chunk has room for,
	// up to maxChunk. It matters because the beginning of the message at the
	// end of a chunk is copied to the next chunk.
	chunkShare = 8
	maxChunk   = 1 << 20
	// maxUsual limits the usual size to the largest one that is pooled.
	maxUsual = 4<<20 - 2*readAhead
	// minRead is the minimum space that is worth a read.
	minRead = 4 << 10
	// readAhead is how far beyond a large message a read may go. The bytes
	// there are copied once more.
	readAhead = 32 << 10
	// keepTail is the size of the largest partial message that is kept outside
	// a chunk.
	keepTail = 4 << 10
	// idlePart is how many times larger than its contents the chunk of an idle
	// connection may be: the ratio between the sizes of chunks.
	idlePart = 8
	// A batch must fill 1/stayPart of a chunk to stay in it. A smaller one is
	// copied, so that a queue does not occupy more than stayPart times the
	// memory of its messages: the chunk of a quiet connection holds one batch.
	stayPart = 8
	// giveFrom is the size of the smallest message for which reading it into a chunk of its
	// own costs less than to copy it out of a chunk with others.
	giveFrom = 32 << 10
	// maxSkipped is the largest envelope that is kept with a message because they are in one
	// chunk.
	maxSkipped = 1 << 10
	// spanCost is the memory of a span.
	spanCost = 16
	// PingUnit is the unit of a PING's ttl.
	PingUnit = 100 * time.Millisecond
	// streamFlow is the flow from which a receive call does not poll: a wake-up for
	// so many messages costs little, and polling takes a processor from the sender.
	streamFlow = 64
	// keepSpans is the largest span slice that an idle connection keeps.
	keepSpans = 64
)

// scarceChunk is the size of an ordinary chunk while memory is scarce.
const scarceChunk = keepTail + minRead

// StreamRead is the maximum number of bytes in a message that a STREAM receives.
const StreamRead = 32 << 10

// 1/TotalStep of the limit is the least that may be queued between two computations.
const TotalStep = 16

const (
	// codedPiece is how many bytes of frames are encoded for one write. A
	// larger frame is a piece by itself.
	codedPiece = 64 << 10
	// codedExtra is more than a codec adds to the body of one frame.
	codedExtra = 64
	// codedSmall is the size up to which a unit is read before its size is
	// checked: that of the largest command.
	codedSmall = zmtp.DefaultMaxCommand
)

const (
	// loanTerm is for how long a connection may go unread while the application
	// handles the messages that it has received. It is checked once or twice as late.
	loanTerm = 2 * time.Millisecond
	// behindBytes is how much may be read without a wait until the peer is
	// taken to be faster than the reading goroutine: more than the kernel has buffered
	// while no goroutine read.
	behindBytes = 16 << 20
)

// lingerLooks is how often drain checks a peer before it gives up one that
// takes nothing. It counts checks rather than time, so that peers are not given
// up because this process was stopped for a while.
const lingerLooks = 10

// DefaultReconnectIntervalMax is the longest wait by default before the next attempt to
// connect to a peer that has refused the socket.
const DefaultReconnectIntervalMax = 10 * time.Second

const (
	// DefaultLinger is the longest that Close waits for queued messages by default.
	DefaultLinger = 30 * time.Second
	// LingerPatience is how long, by default, Close waits for a peer that takes
	// no bytes; see package sockets.
	LingerPatience = connection.LingerPatience
)

// Limits of the pause after a failed accept, which is usually due to a lack of
// file descriptors.
const (
	acceptPauseMin = 5 * time.Millisecond
	acceptPauseMax = time.Second
)

// retireInterval is how often the timer looks: a writer ends that has slept from
// one look to the next.
const retireInterval = 5 * time.Second

// MaxMessage is the size of the largest message that can be received. On 32-bit
// systems it is 512 MiB, because a buffer that doubles must fit in the address
// space. On other systems it is less than 4 GiB, so that a Span can count the
// bytes of a chunk.
const MaxMessage = min(4<<30-1<<20, queue.Unbounded/2)
