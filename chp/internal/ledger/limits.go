package ledger

// maxOrigins bounds the clients in Clients: about 10 MB.
const maxOrigins = 1 << 16

// maxRuns bounds the runs of one client; the oldest are forgotten. A client that writes
// alone has one.
const maxRuns = 8

// Window is how far apart the numbers of a client's requests may be that it still asks for.
const Window = 4096

// mostMade bounds the runs of requests of one client: those that it still asks for, and some that
// it does not, so that they are not moved for each request.
const mostMade = Window + Window/4

// maxMade bounds the runs of requests of all clients: about 24 MB.
const maxMade = 1 << 20

// maxSkips bounds the ranges of one client. Beyond it the two oldest are merged into
// one with SkipSome.
const maxSkips = 64

// maxOrder is the highest counter that a client accepts from a server. Higher numbers
// are reserved.
const maxOrder = 1 << 62

// originsPortion is the approximate size of a portion, in bytes.
const originsPortion = 64 << 10

// stuckBeats is the number of heartbeats without progress after which an update that an
// older server has neither published nor refused is uncertain, if later ones came back.
// And after it the replica has all updates that the server said before were published.
const stuckBeats = 2
