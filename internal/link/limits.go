package link

import "time"

// maxInprocName is the maximum size of an inproc name in bytes, as in libzmq.
const maxInprocName = 256

// MaxServerPort is the highest P of a CHP server.
const MaxServerPort = 65533

// MaxProxyField is the maximum size of a host name, user name or password sent
// to a proxy, in bytes.
const MaxProxyField = 255

const (
	historyTime = 10 * time.Minute // as RFC 6555, section 4.2, recommends
	historySize = 1024             // addresses; beyond it some are forgotten
)

// maxWrite is the maximum size of one write in bytes, so that no connection keeps
// the processor for long.
const maxWrite = 1 << 20

// smallRead is the size of the buffer of a waiting connection in bytes.
const smallRead = 4 << 10

// sendPart is the maximum size of one write in bytes.
const sendPart = 128 << 10

// maxVectors is the maximum number of pieces of one vectored write.
const maxVectors = 64

// localSendBuffer is the maximum size to which the operating system's send
// buffer for a peer on the same machine may grow. A larger buffer serves to
// fill a long network path, which does not exist here: it would only let the
// sender run megabytes ahead, and the bytes would have left the processor's
// cache by the time the peer reads them. With half a megabyte, messages of 64
// KiB are a fifth faster and messages of 1 MiB a third.
const localSendBuffer = 512 << 10

// growthLook is how many bytes are written between two checks of the buffer's
// size. A peer that stops reading can make the sender run ahead by as much more.
const growthLook = localSendBuffer

// maxSkip is the maximum number of waits without polling after a failure.
const maxSkip = 63

// attemptDelay is the Connection Attempt Delay of RFC 8305, section 8.
const attemptDelay = 250 * time.Millisecond

// familyDelay is how long the resolver has for both families before each one is asked for
// by itself, too. It is longer than most answers take, so that names are mostly looked up
// once.
const familyDelay = 300 * time.Millisecond

const (
	// lockPause is the time between two attempts to lock a directory.
	lockPause = 2 * time.Millisecond

	// lockPatience is how long lockDirectory tries. Processes of this package hold the
	// lock only while they bind, but any program that may read the directory can lock it.
	lockPatience = time.Second
)
