// Package follow is how a client follows one of its servers: which one, by which
// connections, from a snapshot to the updates after it.
//
//	run        one session after another, at one server or the next; attempts at several
//	Session    connect, subscribe, join, apply: what one server sends
//	stream     which of it is new, and whether something is missing
//	replica    gets the snapshot and the updates; package submit where own updates go
//
// What arrives goes one way, into [Options.Replica]; what the client sends comes from
// [Options.Writer] through the session's uplink.
package follow

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/live"
	"clustermap/chp/internal/submit"
	"clustermap/chp/internal/subtree"
	"clustermap/chp/internal/wire"
	"clustermap/internal/lograte"
	"clustermap/sockets"
)

// Address is one server's endpoints.
type Address struct {
	Name      string // as the application names it
	Snapshot  string // P; empty in Clone model 1
	Publisher string // P+1; P in Clone model 1
	Collector string // P+2
}

// Options configures a [Follower]. The fields without a comment are those of
// chp.ClientOptions, with the defaults filled in.
type Options struct {
	Servers  []Address
	Subtrees subtree.Set
	Model    wire.Model
	Dialect  wire.Dialect            // of the model
	Security func() sockets.Security // a function, because printing one shows no secrets
	Dial     func(ctx context.Context, network, address string) (net.Conn, error)

	HeartbeatTimeout, SyncTimeout time.Duration
	SendQueue                     int
	MaxMapBytes                   int64
	MaxMessage                    int64 // the largest message that a server may send, in bytes
	KeepOnEmpty                   bool

	OnState   func(state State, server string)
	OnFailure func(server string, err error)
	OnLink    func(kind LinkKind, server, former string, err error)
	Log       *slog.Logger

	Refused func(error) // is told of invalid messages
	Replica *live.Map   // a client's, which may lock it
	Writer  *submit.Writer

	DeletedBytes int  // bounds the memory for deletions during a join; 0 means a default
	Restless     bool // skips the waits between sessions, for tests
}

// Follower follows one of the servers at a time, until Close. Its methods are safe for
// concurrent use.
type Follower struct {
	status
	syncs  syncs
	leases leaseAsks

	opts   Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	ended  chan struct{} // closed when run has returned

	id         string // wire.Client
	generation uint64 // of the last session; owned by run
	Counted    Counters
	current    atomic.Pointer[session] // while it is ACTIVE

	resyncs []resyncLimit // one for each server; owned by the session
	links   links         // owned by run

	past [ledger.MapIDSize]byte // the map of the replica, if a server can be asked what came after it; owned by run
}

// Counters count since New: see chp.ClientStats.
type Counters struct {
	Syncs, Resumed, Gaps, Updates, Stale atomic.Uint64
	Kept                                 atomic.Int64
}

// Sessions returns how often the client has begun to follow a server, with a snapshot or
// without. What belongs to a session is compared to it: another number is another session.
func (n *Counters) Sessions() uint64 { return n.Syncs.Load() + n.Resumed.Load() }

// New returns a follower that does not follow yet: see Start.
func New(o Options) *Follower {
	if o.DeletedBytes == 0 {
		o.DeletedBytes = maxDeletedBytes
	}
	f := &Follower{
		opts: o, ended: make(chan struct{}), id: wire.NewID(), resyncs: make([]resyncLimit, len(o.Servers)),
		links: links{log: o.Log, on: o.OnLink, causes: lograte.Failures()},
	}
	f.changed = make(chan struct{})
	f.syncs.init(o.Replica.Sequence)
	for _, s := range o.Servers {
		f.attempts = append(f.attempts, attempt{server: s.Name})
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Start begins to follow. It is called once.
func (f *Follower) Start() { go f.run() }

// Leave makes waits end with the error of a closed client, present and future ones.
func (f *Follower) Leave() {
	f.status.Leave()
	f.syncs.close()
}

// Close ends the session and waits for all goroutines that Start has begun.
func (f *Follower) Close() {
	f.cancel()
	<-f.ended
}

// Context returns a context that ends when Close begins.
func (f *Follower) Context() context.Context { return f.ctx }

// setState sets the state and reports it if it changed.
func (f *Follower) setState(state State, server string) {
	if f.status.set(state, server) {
		f.reportState(state, server)
	}
}

func (f *Follower) reportState(state State, server string) {
	f.opts.Log.Debug("state changed", "state", state.String(), "server", server)
	if f.opts.OnState != nil && f.ctx.Err() == nil {
		f.opts.OnState(state, server)
	}
}
