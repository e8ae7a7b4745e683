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
	name: "jetstream", share: 10, perKey: jetstreamHistory * 3 / 8,
	serve: serveJetStream, publish: publishJetStream, follow: followJetStream,
}

const (
	jetstreamBucket  = "bench"
	jetstreamHistory = 64
	jetstreamPending = 4096    // answers outstanding
	jetstreamMemory  = 8 << 30 // bytes that the server may use
)

func serveJetStream(ctx context.Context, ready func(...string)) error {
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
	subjects []string // of the keys
	refused  atomic.Pointer[error]
}

func publishJetStream(ctx context.Context, servers []string, w workload) (publisher, error) {
	c, err := dialNATS(ctx, servers)
	if err != nil {
		return nil, err
	}
	p := &jetstreamPublisher{subjects: w.names()}
	for i, name := range p.subjects {
		p.subjects[i] = "$KV." + jetstreamBucket + "." + name
	}
	p.js, err = jetstream.New(c,
		jetstream.WithPublishAsyncMaxPending(jetstreamPending),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { p.refused.Store(&err) }))
	return p, err
}

func (p *jetstreamPublisher) set(u update) error {
	// The client may keep the value until it is acknowledged.
	_, err := p.js.PublishAsync(p.subjects[u.index], slices.Clone(u.value), jetstream.WithStallWait(time.Minute))
	return err
}

func (p *jetstreamPublisher) push() error { return nil } // the client sends in the background

func (p *jetstreamPublisher) settle(ctx context.Context) error {
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
	*table
	see   func(key, value []byte) bool
	watch jetstream.KeyWatcher
}

func followJetStream(ctx context.Context, servers []string, see func(key, value []byte) bool) (replica, error) {
	c, err := dialNATS(ctx, servers)
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
	return &jetstreamReplica{newTable(), see, w}, nil
}

func (r *jetstreamReplica) run(ctx context.Context) error {
	for {
		select {
		case e, ok := <-r.watch.Updates():
			if !ok {
				return errors.New("the watch ended")
			}
			key := []byte(e.Key())
			r.put(key, e.Value())
			if !r.see(key, e.Value()) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
