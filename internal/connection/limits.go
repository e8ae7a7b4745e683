package connection

import "time"

// farewellBytes is the maximum number of bytes read from a refused peer.
const farewellBytes = 64 << 10

// HandshakeBuffer is the size of the buffer for one read of a handshake. A
// greeting and a READY usually fit; longer ones are read in pieces.
const HandshakeBuffer = 512

// halfCloseWait is how long a peer may take to close its side when it has
// received everything.
const halfCloseWait = 250 * time.Millisecond

// LingerPatience is how long, by default, a closed socket waits for a peer that takes
// no bytes; see package sockets.
const LingerPatience = time.Second

// lastLook is how long the reader waits once more when the deadline has passed.
// A process that was stopped for a while, or had no processor, finds both that
// its deadline has passed and that the answer has arrived.
const lastLook = 10 * time.Millisecond
