package chp

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"clustermap/chp/internal/follow"
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
	reader
	lock sync.Mutex // of live

	opts     ClientOptions // without Security
	dialect  wire.Dialect
	maxValue int // ClientOptions.MaxValueSize as the caller set it

	writer   *submit.Writer
	follower *follow.Follower
	refused  refusals
	logs     *lograte.Queue

	mu            sync.Mutex
	closed        bool
	leases        leases
	registrations sync.WaitGroup // their goroutines; grows under mu
}

// NewClient returns a client, which starts to connect to its first server at once. If
// several options are invalid, the error reports all of them.
func NewClient(o ClientOptions) (*Client, error) {
	c, err := newClient(o)
	if err != nil {
		return nil, err
	}
	c.follower.Start()
	return c, nil
}

// newClient returns a client that does not run.
func newClient(o ClientOptions) (*Client, error) {
	maxValue := o.MaxValueSize
	o, servers, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{opts: o, maxValue: maxValue, dialect: wire.DialectOf(o.Model), reader: reader{subtrees: subtree.New(o.Subtrees)}, logs: lograte.NewQueue(o.Logger.Handler())}
	c.opts.Security = sockets.Security{}
	c.leases.setUp(c.renewLeases)
	c.live.SetUp(&c.lock, o.WatchQueue)
	c.writer = submit.New(submit.Options{
		Subtrees: c.subtrees, SendQueue: o.SendQueue, MaxValue: o.MaxValueSize, Sequence: c.Sequence, Has: c.has, Wait: c.WaitActive,
	})
	c.follower = follow.New(follow.Options{
		Servers: servers, Subtrees: c.subtrees, Model: o.Model, Dialect: c.dialect,
		Security: func() sockets.Security { return o.Security }, Dial: o.Dial,
		HeartbeatTimeout: o.HeartbeatTimeout, SyncTimeout: o.SyncTimeout, SendQueue: o.SendQueue,
		MaxMapBytes: o.MaxMapBytes, MaxMessage: min(wire.LargestValue, o.MaxMapBytes) + maxOverhead, KeepOnEmpty: o.KeepOnEmpty,
		OnState: o.OnState, OnFailure: o.OnFailure, OnLink: c.onLink, Log: c.logs.Logger(),
		Refused: c.refused.add, Replica: &c.live, Writer: c.writer,
		DeletedBytes: o.deletedBytes, Restless: o.restless,
	})
	return c, nil
}

// Close closes the client: its connections, goroutines and watches. It waits up to a
// second for queued updates to be written; call Flush first to be sure that the server
// has them. Blocked calls return ErrClosed. Get and the other methods that read the map
// continue to return the last state. Close may be called more than once.
func (c *Client) Close() error {
	c.writer.Finish() // first: updates in flight end with ErrClosed, not as uncertain
	c.follower.Leave()
	c.writer.Close() // before the session, which would drop queued updates
	c.follower.Close()
	c.writer.Requests.Wait()
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.registrations.Wait()
	c.leases.close()
	c.leases.running.Wait()
	c.live.Close()
	c.logs.Close()
	return nil
}

// WaitActive waits until the client follows a server. If the context ends first, it
// returns a [*NotActiveError], which says for each server why the client does not follow
// it, and wraps ctx.Err(). It returns ErrClosed if the client is closed.
func (c *Client) WaitActive(ctx context.Context) error {
	err := c.follower.WaitActive(ctx)
	if err == nil || errors.Is(err, ErrClosed) {
		return err
	}
	return c.notActive(err) // nil if it has become ACTIVE just now
}

// explain returns the error of a context, with the reasons why the client does not follow
// a server if it does not.
func (c *Client) explain(err error) error { return cmp.Or(c.notActive(err), err) }

// State returns the state of the client.
func (c *Client) State() State {
	state, _ := c.follower.State()
	return state
}

// Server returns the server that the client follows or is trying to follow, as named in
// ClientOptions. It returns "" before the first attempt and after Close.
func (c *Client) Server() string {
	_, server := c.follower.State()
	return server
}

// ClientStats holds a client's counters at one moment.
type ClientStats struct {
	State    State
	Server   string
	Keys     int
	Sequence int64
	Syncs    uint64            // snapshots completed
	Resumed  uint64            // times that the client came back and got only what it had missed
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
	state, server := c.follower.State()
	watches, lagged := c.live.Watches()
	n := &c.follower.Counted
	return ClientStats{
		State: state, Server: server, Keys: c.Len(), Sequence: c.Sequence(),
		Syncs: n.Syncs.Load(), Resumed: n.Resumed.Load(), Gaps: n.Gaps.Load(), Updates: n.Updates.Load(), Stale: n.Stale.Load(),
		Lagged: lagged, Watches: watches, Refused: c.refused.counts(), Kept: int(n.Kept.Load()),
	}
}

// onLink reports a change of the link to a server to the application.
func (c *Client) onLink(kind LinkKind, server, former string, err error) {
	if c.opts.OnLink != nil {
		c.opts.OnLink(LinkEvent{Kind: kind, Server: server, Former: former, Sequence: c.Sequence(), Err: err})
	}
}
