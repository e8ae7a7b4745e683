package chp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/kvmsg"
	"clustermap/internal/store"
	"clustermap/sockets"
)

// Client is a CHP client (RFC 12): a replica of a server's hashmap, or of some
// subtrees of it, and a way to change it.
//
// A client follows one of its servers. It takes a snapshot, then applies the
// updates that the server publishes, in the server's order. When the server
// falls silent, the connection breaks, or an update is found missing, it takes
// a new snapshot, of the same server or the next. Meanwhile Get goes on
// answering from what it has; the new state takes the place of the old one at
// once, without keys that were deleted meanwhile.
//
// The replica changes by what the server publishes only. Unlike the guide's
// client, which stores its own updates at once, a Set is seen by Get when it
// has come back; SetSync and Flush wait for that. So all clients see all
// updates in the same order.
//
// Traffic is encrypted, and client and server know each other, if
// [ClientOptions.Security] has keys for CURVE. CHP itself has none of that, and no
// access control (RFC 12, Security).
//
// All methods are safe for concurrent use.
type Client struct {
	// Immutable.
	opts     ClientOptions           // without Security
	security func() sockets.Security // a function, because printing one shows no secrets
	servers  []address
	subtrees subtrees
	dialect  dialect
	log      *slog.Logger // never waits
	logs     *logQueue
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	ended    chan struct{} // closed when run has ended

	status    *status
	echoes    echoes
	writer    writer
	returning uuidMaker // owned by the session

	id         string // propertyClient
	generation uint64 // of the last session; owned by run
	maxValue   int    // ClientOptions.MaxValueSize as it was given

	// Read by anyone, written by the session under mu.
	state    atomic.Pointer[replica] // nil until the first snapshot is complete
	sequence atomic.Int64

	// mu makes a batch of updates one step for cuts and watches. The store of
	// the state is written under it, its readers do without.
	mu      sync.Mutex
	watches []*Watch
	closed  bool
	pieces  []store.Piece // scratch

	writing atomic.Bool // the client has sent an update
	silent  atomic.Bool // the server of the present session has sent nothing yet
	refused refusals
	syncs   atomic.Uint64
	gaps    atomic.Uint64
	updates atomic.Uint64
	stale   atomic.Uint64
	lagged  atomic.Uint64
	kept    atomic.Int64

	attempts atomic.Uint64 // to connect; for tests

	resyncs    []resyncLimit // by server; of the session
	complaints []complaints  // by server; of run
	links      links         // of run
}

// NewClient makes a client, which begins at once to connect to its first
// server. It returns all faults of the options as one error.
func NewClient(o ClientOptions) (*Client, error) {
	c, err := newClient(o)
	if err != nil {
		return nil, err
	}
	go c.run()
	return c, nil
}

// newClient makes a client that does not run.
func newClient(o ClientOptions) (*Client, error) {
	maxValue := o.MaxValueSize
	o, servers, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{
		opts:     o,
		servers:  servers,
		dialect:  o.Model.dialect(),
		subtrees: newSubtrees(o.Subtrees),
		logs:     newLogQueue(o.Logger.Handler()),
		ended:    make(chan struct{}),
		status:   newStatus(),
		resyncs:  make([]resyncLimit, len(servers)),

		complaints: make([]complaints, len(servers)),
	}
	c.security, c.opts.Security = func() sockets.Security { return o.Security }, sockets.Security{}
	c.log = c.logs.logger()
	c.id = newClientID()
	c.maxValue = maxValue
	secret := newUUIDSecret()
	c.writer.uuids, c.returning = uuidMaker{uuidSecret: secret}, uuidMaker{uuidSecret: secret}
	c.writer.init(c)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Close ends the client: its connections, goroutines and watches. Updates that
// were sent and not yet written get a second for that; to be sure of them call
// Flush before. Calls that wait return ErrClosed. Get and its like go on
// answering from the last state. Close may be called more than once.
func (c *Client) Close() error {
	c.echoes.close() // first: what is on its way ends with ErrClosed, not as uncertain
	c.status.close()
	c.writer.close() // before the session, which would drop queued updates
	c.cancel()
	<-c.ended
	c.mu.Lock()
	c.closed = true
	watches := slices.Clone(c.watches)
	c.mu.Unlock()
	for _, w := range watches {
		w.stop(ErrClosed)
	}
	c.logs.close()
	return nil
}

// WaitActive waits until the client follows a server. When the context ends
// first, the error wraps ctx.Err() and, if there is one, the reason why the
// client last failed to follow a server (see [ClientOptions.OnFailure]), or
// ErrSilent if it is connected to a server that has sent nothing.
func (c *Client) WaitActive(ctx context.Context) error { return c.waitActive(ctx) }

func (c *Client) waitActive(ctx context.Context) error {
	err := c.status.waitActive(ctx)
	if err == nil || errors.Is(err, ErrClosed) {
		return err
	}
	return c.explain(err)
}

// explain adds to the error of a context that ended why the client does not
// follow a server, if it does not and the reason is known.
func (c *Client) explain(err error) error {
	server, failure := c.status.why()
	if c.State() == StateSyncing && c.silent.Load() {
		server, failure = c.Server(), ErrSilent
	}
	if failure == nil {
		return err
	}
	return fmt.Errorf("chp: no server followed: %w: %s: %w", err, server, failure)
}

// State returns how far the client is with its server.
func (c *Client) State() State {
	state, _ := c.status.get()
	return state
}

// Server returns the server that the client follows or turns to, as
// ClientOptions names it, or "" before it has begun and after Close.
func (c *Client) Server() string {
	_, server := c.status.get()
	return server
}

// Get returns a copy of a key's value. It takes no lock.
func (c *Client) Get(key string) ([]byte, bool) { return c.AppendGet(nil, key) }

// AppendGet appends a key's value to dst. It takes no lock, and allocates only
// to grow dst.
func (c *Client) AppendGet(dst []byte, key string) ([]byte, bool) {
	state := c.state.Load()
	if state == nil {
		return dst, false
	}
	value, _, ok := state.Get(bytesOf(key), dst)
	return value, ok
}

// Len returns the number of keys.
func (c *Client) Len() int {
	if state := c.state.Load(); state != nil {
		return state.Len()
	}
	return 0
}

// Sequence returns the sequence of the last update that was applied, or of the
// snapshot. It falls when the client turns to a server that counts lower.
func (c *Client) Sequence() int64 { return c.sequence.Load() }

// Range calls f for every key, in no order, until f returns false: for the
// keys and values of one moment, whatever is applied meanwhile. key and value
// are valid during the call only and must not be changed.
func (c *Client) Range(f func(key, value []byte) bool) {
	c.mu.Lock()
	state := c.state.Load()
	if state == nil {
		c.mu.Unlock()
		return
	}
	now := state.Cut()
	c.mu.Unlock()
	defer now.Release()
	now.Records(func(r kvmsg.Record) bool { return f(r.Key(), r.Value()) })
}

// ClientStats is a reading of a client's counters.
type ClientStats struct {
	State    State
	Server   string
	Keys     int
	Sequence int64
	Syncs    uint64            // snapshots completed
	Gaps     uint64            // times that updates were found missing
	Updates  uint64            // KVPUBs applied since the client was made
	Stale    uint64            // KVPUBs discarded: not above the last sequence, or in the snapshot
	Lagged   uint64            // watches ended with ErrLagged
	Watches  int               // watches open
	Refused  map[Reason]uint64 // messages with a fault, by reason; all but their UUID and properties may have been used

	// Kept is how many keys the last snapshot left in place, because the server's
	// map was new and empty and ClientOptions.KeepOnEmpty is set.
	Kept int
}

// Stats returns the counters as they are now.
func (c *Client) Stats() ClientStats {
	state, server := c.status.get()
	c.mu.Lock()
	watches := len(c.watches)
	c.mu.Unlock()
	return ClientStats{
		State: state, Server: server, Keys: c.Len(), Sequence: c.Sequence(),
		Syncs: c.syncs.Load(), Gaps: c.gaps.Load(), Updates: c.updates.Load(), Stale: c.stale.Load(),
		Lagged: c.lagged.Load(), Watches: watches, Refused: c.refused.counts(), Kept: int(c.kept.Load()),
	}
}

// enter changes the state and tells the application.
func (c *Client) enter(state State, server string) {
	if c.status.set(state, server) {
		c.tell(state, server)
	}
}

func (c *Client) tell(state State, server string) {
	c.log.Debug("state changed", "state", state.String(), "server", server)
	if c.opts.OnState != nil && c.ctx.Err() == nil {
		c.opts.OnState(state, server)
	}
}

// tellEvery is after how many bytes of updates a server tells how far they have come.
// A client that sees all of its own updates come back need not be told.
func (c *Client) tellEvery() int {
	if c.subtrees.all() {
		return 0
	}
	return max(c.opts.SendQueue/4, 1)
}

// settled is how long a session must have been ACTIVE for the next failure to
// count as the first.
const settled = time.Second
