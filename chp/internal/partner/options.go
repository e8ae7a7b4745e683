package partner

import (
	"context"
	"log/slog"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/internal/order"
	"clustermap/chp/internal/state"
	"clustermap/chp/internal/wire"
	"clustermap/internal/peerlog"
	"clustermap/patterns/binarystar"
	"clustermap/sockets"
)

// Options configures a [Pair]. The fields without a comment are those of chp.PairOptions and
// chp.ServerOptions, with the defaults filled in.
type Options struct {
	Role                         binarystar.Role
	Peer, State, PeerState       string
	Interval, Timeout            time.Duration
	Acks                         int
	SnapshotTimeout, ExpiryGrace time.Duration

	// Functions, because printing one shows no secrets. See [Pair.Secure].
	Security     func() sockets.Security // of the state endpoint
	PeerSecurity func() sockets.Security // of connections to the other server
	Secret       func() []byte

	Restored bool       // the map of the sequencer is from a log
	Epochs   commit.Log // where the epoch is kept, or nil

	Order    *order.Sequencer
	Router   *sockets.Router                                                     // the snapshot port
	Sockets  []Socket                                                            // all that clients connect to
	Answer   func(ctx context.Context, peer *sockets.Peer, want wire.Want) error // begins to send a client the map
	Dismiss  func(reason error)                                                  // disconnects all clients
	Waits    func() bool                                                         // whether updates of this process wait for the sequencer
	Local    func(peer *sockets.Peer) bool                                       // whether a peer is on this machine
	Diverged func(d Divergence) error                                            // is called with updates before they are discarded; they are not if it fails
	Log      *slog.Logger
	PeerLog  *peerlog.Log
}

// Socket is a socket of the server.
type Socket interface {
	Ping()         // asks all peers for a sign of life
	Reads() uint64 // number of reads of all connections
}

// Divergence describes updates that only this server has, and that it discards.
type Divergence struct {
	Epoch       uint64    // the term of the reign that made them
	After, Last int64     // they have the sequences behind After up to Last
	Cut         state.Cut // of this server's map; lent
}
