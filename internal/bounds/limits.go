package bounds

import "time"

// Of the descriptors that the process may have, a reserve is not for accepted
// connections: the log on disk, files and the process's own connections need
// descriptors too, and a server that cannot open its next file is worth less than
// one that refuses a connection. The lower half of the reserve is for sockets with
// few connections, so that others that take all they can get do not exclude them,
// and for operators. Of the handshakes each socket gets a share.
const (
	maxReserve     = 64 // descriptors, but not more than a quarter of the limit
	FewConnections = 4  // connections of a socket that may take the lower half
	handshakeShare = 8  // 1/handshakeShare of the descriptors are for handshakes
)

const (
	OperatorPlaces = 4           // of each socket, and as many on trial
	operatorTurn   = time.Second // enough for a command
)

// What peers announce is kept as long as their connections. That of a usual peer does not
// count, so that others who announce much do not keep it out.
const (
	freeAnnounced = 512      // bytes of a connection
	maxAnnounced  = 32 << 20 // bytes of all connections of a socket, beyond those
)

// Of the memory for messages that have not arrived as a whole, the last 1/sharePart is not
// for the client that has the rest, and only the first 1/aheadPart is for bytes that are
// still to come. A peer stalls that sends less than 1/stallPart of what it holds within
// stallPatience: it would hold the memory for a minute and more.
const (
	sharePart     = 8
	aheadPart     = 8
	stallPart     = 32
	stallPatience = 2 * time.Second
)

// handshakeGrace is how long a peer may take for a step of its handshake before
// a new connection may replace it: a round trip around the world, with a
// margin. Silent connections that precede a correct one in the backlog delay it
// by about this time per MaxHandshakes of them.
const handshakeGrace = 250 * time.Millisecond
