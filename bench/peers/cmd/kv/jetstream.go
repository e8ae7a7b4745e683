package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"clustermap/internal/bench/link"
	"clustermap/internal/bench/pipeline"
)

// jetstreamSystem is a bucket of NATS JetStream's key-value store in memory, with one
// server. KeyValue.Put waits for each answer, so the publisher writes the bucket's subjects
// with PublishAsync, with many answers outstanding. The replica is a watcher of all keys;
// the table behind it is ours.
//
// A watcher that is behind misses values that have left the key's history, so the bucket
// keeps the longest one, 64 values, and the updates are bounded to 24 for each key: then
// all of them are kept, however far behind the watcher is. With the default history of 1,
// JetStream would keep less and conflate.
var jetstreamSystem = system{
	Pipeline: pipeline.Pipeline{Name: "jetstream", Serve: serveJetStream, Publish: publishJetStream, Follow: followJetStream},
	share:    10, perKey: jetstreamHistory * 3 / 8,
}

const (
	jetstreamBucket  = "bench"
	jetstreamHistory = 64
	jetstreamPending = 4096    // answers outstanding
	jetstreamMemory  = 8 << 30 // bytes that the server may use
)

func serveJetStream(p *link.Peer, ready func(...string)) error {
	ctx := p.Context()
	dir, err := os.MkdirTemp("", "kv-jetstream-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o := natsOptions()
	o.JetStream, o.StoreDir, o.JetStreamMaxMemory = true, dir, jetstreamMemory
	s, err := startNATS(o)
	if err != nil {
		return err
	}
	defer func() {
		s.Shutdown()
		s.WaitForShutdown() // before its directory is removed
	}()
	c, err := dialNATS(ctx, []string{s.ClientURL()})
	if err != nil {
		return err
	}
	js, err := jetstream.New(c)
	if err != nil {
		return err
	}
	if _, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: jetstreamBucket, History: jetstreamHistory, Storage: jetstream.MemoryStorage,
	}); err != nil {
		return err
	}
	ready(s.ClientURL())
	<-ctx.Done()
	return nil
}

type jetstreamPublisher struct {
	js       jetstream.JetStream
	subjects map[string]string // of the keys
	refused  atomic.Pointer[error]
}

func publishJetStream(peer *link.Peer) (pipeline.Publisher, error) {
	c, err := dialNATS(peer.Context(), peer.Servers)
	if err != nil {
		return nil, err
	}
	p := &jetstreamPublisher{subjects: map[string]string{}}
	for _, key := range peer.Spec.KeysOf(0) {
		p.subjects[key] = "$KV." + jetstreamBucket + "." + key
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
	held
	watch jetstream.KeyWatcher
}

func followJetStream(p *link.Peer, r *pipeline.Receiver) (pipeline.Replica, error) {
	ctx := p.Context()
	c, err := dialNATS(ctx, p.Servers)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(c)
	if err != nil {
		return nil, err
	}
	bucket, err := js.KeyValue(ctx, jetstreamBucket)
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
	return &jetstreamReplica{newHeld(p, r), w}, nil
}

// Run follows the watcher.
func (r *jetstreamReplica) Run(ctx context.Context) error {
	for {
		select {
		case e, ok := <-r.watch.Updates():
			if !ok {
				return errors.New("the watch ended")
			}
			if !r.apply([]byte(e.Key()), e.Value()) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
