package chp

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/chp/internal/replica"
	"clustermap/chp/internal/submit"
	"clustermap/chp/internal/subtree"
	"clustermap/chp/internal/wire"
	"clustermap/internal/lograte"
	"clustermap/sockets"
)

// Client is a CHP client (RFC 12): a replica of a server's map, or of some of its
// subtrees, and the means to update the map.
//
// A client follows one of its servers. It fetches a snapshot, then applies the updates
// that the server publishes, in the server's order. When the server falls silent, the
// connection breaks, or an update is missing, the client fetches a new snapshot from
// the same server or the next. In the meantime Get answers from the old state. The new
// state replaces the old one atomically; keys that were deleted in between disappear
// with it.
//
// Only updates that the server publishes change the replica. The guide's client stores
// its own updates at once; here Get returns the value of a Set only after the server
// has published it. SetSync and Flush wait for that. So all clients see all updates in
// the same order.
//
// Traffic is encrypted and both sides are authenticated if [ClientOptions.Security] has
// CURVE keys. CHP itself has neither encryption nor access control (RFC 12, Security).
//
// All methods are safe for concurrent use.
type Client struct {
	// Immutable.
	opts     ClientOptions           // without Security
	security func() sockets.Security // a function, because printing one shows no secrets
	servers  []address
	subtrees subtree.Set
	dialect  wire.Dialect
	log      *slog.Logger // never waits
	logs     *lograte.Queue
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	ended    chan struct{} // closed when run has returned

	status *status
	writer *submit.Writer

	id         string // wire.Client
	generation uint64 // of the last session; owned by run
	maxValue   int    // ClientOptions.MaxValueSize as the caller set it

	replica replica.Replica

	mu     sync.Mutex
	closed bool
	leases sync.WaitGroup // their goroutines; grows under mu

	silent  atomic.Bool // the server of the current session has sent nothing yet
	refused refusals
	syncs   atomic.Uint64
	gaps    atomic.Uint64
	updates atomic.Uint64
	stale   atomic.Uint64
	kept    atomic.Int64

	attempts atomic.Uint64 // to connect; for tests

	resyncs    []resyncLimit // one for each server; owned by the session
	complaints lograte.Limiter
	links      links // owned by run
}

// NewClient returns a client, which starts to connect to its first server at once. If
// several options are invalid, the error reports all of them.
func NewClient(o ClientOptions) (*Client, error) {
	c, err := newClient(o)
	if err != nil {
		return nil, err
	}
	go c.run()
	return c, nil
}

// newClient returns a client that does not run.
func newClient(o ClientOptions) (*Client, error) {
	maxValue := o.MaxValueSize
	o, servers, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{
		opts:     o,
		servers:  servers,
		dialect:  wire.DialectOf(o.Model),
		subtrees: subtree.New(o.Subtrees),
		logs:     lograte.NewQueue(o.Logger.Handler()),
		ended:    make(chan struct{}),
		status:   newStatus(servers),
		resyncs:  make([]resyncLimit, len(servers)),

		complaints: lograte.Limiter{First: complaintFirst, Most: complaintMost, Size: maxComplaints},
	}
	c.security, c.opts.Security = func() sockets.Security { return o.Security }, sockets.Security{}
	c.log = c.logs.Logger()
	c.id = wire.NewID()
	c.replica.SetUp(o.WatchQueue)
	c.maxValue = maxValue
	c.writer = submit.New(submit.Options{
		SendQueue: o.SendQueue, MaxValue: o.MaxValueSize, Sequence: c.Sequence, Wait: c.WaitActive,
		Foreign: func(key []byte) bool { return !c.subtrees.Contains(key) },
	})
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Close closes the client: its connections, goroutines and watches. It waits up to a
// second for queued updates to be written; call Flush first to be sure that the server
// has them. Blocked calls return ErrClosed. Get and the other methods that read the map
// continue to return the last state. Close may be called more than once.
func (c *Client) Close() error {
	c.writer.Finish() // first: updates in flight end with ErrClosed, not as uncertain
	c.status.close()
	c.writer.Close() // before the session, which would drop queued updates
	c.cancel()
	<-c.ended
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.leases.Wait()
	c.replica.Close()
	c.logs.Close()
	return nil
}

// WaitActive waits until the client follows a server. If the context ends first, it
// returns a [*NotActiveError], which says for each server why the client does not follow
// it, and wraps ctx.Err(). It returns ErrClosed if the client is closed.
func (c *Client) WaitActive(ctx context.Context) error {
	err := c.status.waitActive(ctx)
	if err == nil || errors.Is(err, ErrClosed) {
		return err
	}
	if e := c.status.notActive(err, c.silent.Load()); e != nil {
		return e
	}
	return nil // it has become ACTIVE just now
}

// explain returns the error of a context, with the reasons why the client does not follow
// a server if it does not.
func (c *Client) explain(err error) error {
	if e := c.status.notActive(err, c.silent.Load()); e != nil {
		return e
	}
	return err
}

// State returns the state of the client.
func (c *Client) State() State {
	state, _ := c.status.get()
	return state
}

// Server returns the server that the client follows or is trying to follow, as named in
// ClientOptions. It returns "" before the first attempt and after Close.
func (c *Client) Server() string {
	_, server := c.status.get()
	return server
}

// Get returns a copy of the value of key, and whether the key exists. It takes no lock.
func (c *Client) Get(key string) ([]byte, bool) { return c.AppendGet(nil, key) }

// AppendGet appends the value of key to dst and reports whether the key exists. It
// takes no lock, and allocates only to grow dst.
func (c *Client) AppendGet(dst []byte, key string) ([]byte, bool) {
	now := c.replica.Now()
	if now == nil {
		return dst, false
	}
	value, _, ok := now.Get(bytesOf(key), dst)
	return value, ok
}

// Len returns the number of keys.
func (c *Client) Len() int {
	if now := c.replica.Now(); now != nil {
		return now.Len()
	}
	return 0
}

// Sequence returns the sequence of the last applied update, or of the snapshot if no
// update has followed it. It can decrease when the client changes to another server.
func (c *Client) Sequence() int64 { return c.replica.Sequence() }

// ClientStats holds a client's counters at one moment.
type ClientStats struct {
	State    State
	Server   string
	Keys     int
	Sequence int64
	Syncs    uint64            // snapshots completed
	Gaps     uint64            // gaps found in the sequences
	Updates  uint64            // KVPUBs applied since NewClient
	Stale    uint64            // KVPUBs discarded because the state already included them
	Lagged   uint64            // watches that ended with ErrLagged
	Watches  int               // open watches
	Refused  map[Reason]uint64 // invalid messages, by reason; if only the UUID or the properties were invalid, the rest was applied

	// Kept is the number of keys that the client kept at the last snapshot, because the
	// server's map was new and empty and ClientOptions.KeepOnEmpty is set.
	Kept int
}

// Stats returns the current counters.
func (c *Client) Stats() ClientStats {
	state, server := c.status.get()
	watches, lagged := c.replica.Watches()
	return ClientStats{
		State: state, Server: server, Keys: c.Len(), Sequence: c.Sequence(),
		Syncs: c.syncs.Load(), Gaps: c.gaps.Load(), Updates: c.updates.Load(), Stale: c.stale.Load(),
		Lagged: lagged, Watches: watches, Refused: c.refused.counts(), Kept: int(c.kept.Load()),
	}
}

// setState sets the state and calls OnState if it changed.
func (c *Client) setState(state State, server string) {
	if c.status.set(state, server) {
		c.reportState(state, server)
	}
}

func (c *Client) reportState(state State, server string) {
	c.log.Debug("state changed", "state", state.String(), "server", server)
	if c.opts.OnState != nil && c.ctx.Err() == nil {
		c.opts.OnState(state, server)
	}
}

// progressEvery returns the number of bytes of updates after which the server reports
// progress at the latest.
func (c *Client) progressEvery() int { return max(c.opts.SendQueue/4, 1) }

// settled is how long a session must have been ACTIVE for the next failure to count as
// the first.
const settled = time.Second
