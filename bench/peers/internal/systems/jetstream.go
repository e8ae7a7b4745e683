package systems

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"clustermap/internal/bench/link"
	"clustermap/internal/bench/pipeline"
)

// Bucket is the name of a bucket of JetStream's key-value store.
const Bucket = "bench"

// A watcher that is behind misses values that have left the key's history, so the bucket keeps the longest
// one, History values, and the updates are bounded to PerKey for each key: then all of them are
// kept, however far behind the watcher is. With the default history of 1, JetStream would keep
// less and conflate.
const (
	History = 64
	PerKey  = History * 3 / 8
)

const jetstreamPending = 4096 // answers outstanding

type jetstreamPublisher struct {
	js       jetstream.JetStream
	subjects map[string]string // of the keys
	refused  atomic.Pointer[error]
}

// PublishJetStream returns a publisher that writes the bucket's subjects with PublishAsync, with many
// answers outstanding: KeyValue.Put waits for each.
func PublishJetStream(peer *link.Peer) (pipeline.Publisher, error) {
	c, err := DialNATS(peer.Context(), peer.Servers, nats.NoReconnect())
	if err != nil {
		return nil, err
	}
	p := &jetstreamPublisher{subjects: map[string]string{}}
	for _, key := range peer.Spec.KeysOf(0) {
		p.subjects[key] = "$KV." + Bucket + "." + key
	}
	p.js, err = jetstream.New(c,
		jetstream.WithPublishAsyncMaxPending(jetstreamPending),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { p.refused.Store(&err) }))
	return p, err
}

func (p *jetstreamPublisher) Set(_ int, key string, value []byte) error {
	// The client may keep the value until it is acknowledged.
	_, err := p.js.PublishAsync(p.subjects[key], slices.Clone(value), jetstream.WithStallWait(time.Minute))
	return err
}

func (p *jetstreamPublisher) Push() error { return nil } // the client sends in the background

func (p *jetstreamPublisher) Settle(ctx context.Context) error {
	select {
	case <-p.js.PublishAsyncComplete():
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := p.refused.Load(); err != nil {
		return *err
	}
	return nil
}

type jetstreamReplica struct {
	Held
	watch jetstream.KeyWatcher
}

// FollowJetStream returns a replica that watches all keys of the bucket; the table behind it is ours.
func FollowJetStream(p *link.Peer, r *pipeline.Receiver) (pipeline.Replica, error) {
	ctx := p.Context()
	c, err := DialNATS(ctx, p.Servers, nats.NoReconnect())
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(c)
	if err != nil {
		return nil, err
	}
	bucket, err := js.KeyValue(ctx, Bucket)
	if err != nil {
		return nil, err
	}
	w, err := bucket.WatchAll(ctx)
	if err != nil {
		return nil, err
	}
	// A nil entry says that the present keys, of which there are none, are complete.
	if e := <-w.Updates(); e != nil {
		return nil, fmt.Errorf("the bucket holds %q", e.Key())
	}
	return &jetstreamReplica{NewHeld(p, r), w}, nil
}

// Run follows the watcher.
func (r *jetstreamReplica) Run(ctx context.Context) error {
	for {
		select {
		case e, ok := <-r.watch.Updates():
			if !ok {
				return errors.New("the watch ended")
			}
			if !r.Apply([]byte(e.Key()), e.Value()) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
