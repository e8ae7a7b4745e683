package ours

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"clustermap/chp"
	"clustermap/internal/bench/link"
	"clustermap/internal/bench/pipeline"
	"clustermap/internal/bench/workload"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// ClientArgs are the arguments of publishers and replicas: nil, or keys of CURVE in Z85.
type ClientArgs struct{ Key, ServerKey string }

// NewClientArgs returns the arguments for clients that connect with the security.
func NewClientArgs(s sockets.Security) *ClientArgs {
	if s.CurveServerKey.IsZero() {
		return nil
	}
	return &ClientArgs{Key: s.CurveSecretKey.Z85(), ServerKey: s.CurveServerKey.String()}
}

// newClient returns a client that connects to the servers of a peer's task with its keys.
func newClient(p *link.Peer, o chp.ClientOptions) (*chp.Client, error) {
	var keys *ClientArgs
	if err := json.Unmarshal(p.Args, &keys); err != nil {
		return nil, err
	}
	o.Servers = p.Servers
	o.MaxMapBytes = -1                       // it is as large as the benchmark makes it
	o.Logger = slog.New(slog.DiscardHandler) // the benchmark reports errors itself
	if keys != nil {
		var e1, e2 error
		o.Security.CurveSecretKey, e1 = zmtp.ParseSecretKey(keys.Key)
		o.Security.CurveServerKey, e2 = zmtp.ParsePublicKey(keys.ServerKey)
		if err := errors.Join(e1, e2); err != nil {
			return nil, err
		}
	}
	return chp.NewClient(o)
}

// open returns a client that is active and is closed when the peer's context ends.
func open(p *link.Peer, o chp.ClientOptions) (*chp.Client, error) {
	c, err := newClient(p, o)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(p.Context(), func() { c.Close() })
	return c, c.WaitActive(p.Context())
}

// publisher calls Set for each update. Its client replicates only its sentinel, because
// the replicas are other processes.
type publisher struct {
	ctx      context.Context
	client   *chp.Client
	sentinel string
}

// publish returns a publisher from which the server receives.
func publish(p *link.Peer) (pipeline.Publisher, error) {
	sentinel := p.Spec.Sentinel(p.Publisher)
	c, err := open(p, chp.ClientOptions{Subtrees: []string{sentinel}})
	if err != nil {
		return nil, err
	}
	s := &publisher{ctx: p.Context(), client: c, sentinel: sentinel}
	return s, s.Settle(s.ctx)
}

func (p *publisher) Set(_ int, key string, value []byte) error {
	return p.client.Set(p.ctx, key, value)
}

func (p *publisher) Push() error { return nil } // the client sends in the background

// Settle sets the sentinel and waits until the server has published it, and therefore all
// updates before it.
func (p *publisher) Settle(ctx context.Context) error {
	_, err := p.client.SetSync(ctx, p.sentinel, []byte("settled"))
	return err
}

// Clean deletes the keys of the run from an existing server.
func (p *publisher) Clean(ctx context.Context, keys []string) error {
	for _, key := range append(keys, p.sentinel) {
		if err := p.client.Delete(ctx, key); err != nil {
			return err
		}
	}
	return p.client.Flush(ctx)
}

// watchQueue is large enough for a watch to fall behind for a moment on a machine with
// few cores. It bounds memory. Time in the queue counts as latency.
const watchQueue = 1 << 30

// replica is a client with a watch that reports every update.
type replica struct {
	client    *chp.Client
	watch     *chp.Watch
	receiver  *pipeline.Receiver
	sentinels []byte
	synced    bool
}

func follow(p *link.Peer, r *pipeline.Receiver) (pipeline.Replica, error) {
	c, err := newClient(p, chp.ClientOptions{Subtrees: []string{p.Spec.Subtree}, WatchQueue: watchQueue})
	if err != nil {
		return nil, err
	}
	w, err := c.Watch()
	if err != nil {
		return nil, err
	}
	context.AfterFunc(p.Context(), func() {
		w.Close()
		c.Close()
	})
	sentinels := []byte(workload.SentinelPrefix(p.Spec.Prefix))
	return &replica{client: c, watch: w, receiver: r, sentinels: sentinels}, c.WaitActive(p.Context())
}

// Run receives events until all updates have arrived.
func (r *replica) Run(ctx context.Context) error {
	var fault error
	more := true
	take := func(e chp.Event) bool {
		more, fault = r.take(&e)
		return more && fault == nil
	}
	for more {
		r.receiver.Waited()
		if err := errors.Join(r.watch.NextBatch(ctx, take), fault); err != nil {
			return err
		}
	}
	return nil
}

func (r *replica) take(e *chp.Event) (more bool, err error) {
	switch {
	case e.Op == chp.OpSynced && r.synced:
		return false, fmt.Errorf("the connection broke, or the server sent it away: a second snapshot at sequence %d", e.Sequence)
	case e.Op == chp.OpSynced:
		r.synced = true
	case bytes.HasPrefix(e.Key, r.sentinels):
	case !r.synced:
		// An earlier run has left it in an existing server.
		return false, fmt.Errorf("the server already holds %q", e.Key)
	default:
		// No publisher deletes keys.
		return r.receiver.See(e.Key, e.Value), nil
	}
	return true, nil
}

// Content returns the fingerprint of the client's map without sentinels.
func (r *replica) Content() workload.Content {
	var content workload.Content
	r.client.Range(func(key, value []byte) bool {
		if !bytes.HasPrefix(key, r.sentinels) {
			content.Add(key, value)
		}
		return true
	})
	return content
}
