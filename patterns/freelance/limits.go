package freelance

import "time"

// Defaults of ClientOptions. The first three are those of the guide.
const (
	DefaultTimeout      = 3 * time.Second
	DefaultPingInterval = 2 * time.Second
	DefaultServerTTL    = 3 * DefaultPingInterval
	DefaultMaxRequests  = 10_000
)

// Defaults of ServerOptions.
const (
	DefaultConcurrency     = 64
	DefaultMaxWaiting      = 1000
	DefaultMaxWaitingBytes = 64 << 20
	DefaultMaxWait         = 10 * time.Second
)

// frameCost is what counts for each frame of a waiting request beside its bytes, which can be
// none. clientPart is the part of the places for requests that wait, and of their bytes, that
// one client leaves to the others.
const (
	frameCost  = 24
	clientPart = 8
)

// maxIdentity is the length limit of a ZMTP identity, in bytes.
const maxIdentity = 255

// maxErrorText bounds the text of a refusal, in bytes.
const maxErrorText = 1024

// minHandshake is the least time that a server gets for its handshake.
const minHandshake = 5 * time.Second

// headStart is how long requests wait for the first connection to a server before they go
// to a later one in the order: as long as between two addresses in RFC 8305.
const headStart = 250 * time.Millisecond

// replyLinger bounds the time that Close waits for replies to be written.
const replyLinger = time.Second
