package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"clustermap/chp"
)

// chpSystem is our own server and client, through their public API with default options.
// Each update is a call of Client.Set; a replica is a client of the whole map, with a
// watch that reports every update.
var chpSystem = system{name: "chp", serve: serveCHP, publish: publishCHP, follow: followCHP}

func serveCHP(ctx context.Context, ready func(...string)) error {
	warnings := slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})
	s, err := chp.NewServer(chp.ServerOptions{Logger: slog.New(warnings)})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Listen(ctx); err != nil {
		return err
	}
	ready(s.Endpoints().Snapshot)
	return s.Serve(ctx)
}

// sentinel is the key of which the publisher waits until it comes back: then the server
// has published all updates before it. Its client replicates only this key.
const sentinel = "/sentinel"

// quiet is the clients' logger: kv reports errors itself, and the server ends before them.
var quiet = slog.New(slog.DiscardHandler)

type chpPublisher struct {
	ctx    context.Context
	client *chp.Client
}

func publishCHP(ctx context.Context, servers []string, _ workload) (publisher, error) {
	c, err := chp.NewClient(chp.ClientOptions{Servers: servers, Subtrees: []string{sentinel}, Logger: quiet})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { c.Close() })
	if err := c.WaitActive(ctx); err != nil {
		return nil, err
	}
	return &chpPublisher{ctx, c}, nil
}

func (p *chpPublisher) set(u update) error { return p.client.Set(p.ctx, u.key, u.value) }

func (p *chpPublisher) push() error { return nil } // the client sends in the background

func (p *chpPublisher) settle(ctx context.Context) error {
	_, err := p.client.SetSync(ctx, sentinel, []byte("end"))
	return err
}

type chpReplica struct {
	client *chp.Client
	watch  *chp.Watch
	see    func(key, value []byte) bool
}

// chpWatchQueue is large enough for a watch to fall behind for a moment on a machine with
// few cores. Time in the queue counts.
const chpWatchQueue = 1 << 30

func followCHP(ctx context.Context, servers []string, see func(key, value []byte) bool) (replica, error) {
	c, err := chp.NewClient(chp.ClientOptions{Servers: servers, WatchQueue: chpWatchQueue, Logger: quiet})
	if err != nil {
		return nil, err
	}
	w, err := c.Watch()
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() {
		w.Close()
		c.Close()
	})
	if err := c.WaitActive(ctx); err != nil {
		return nil, err
	}
	return &chpReplica{c, w, see}, nil
}

func (r *chpReplica) run(ctx context.Context) error {
	more := true
	var fault error
	for more && fault == nil {
		err := r.watch.NextBatch(ctx, func(e chp.Event) bool {
			switch {
			case e.Op == chp.OpSet && e.Cause == chp.CauseSet:
				if len(e.Key) != len(sentinel) || string(e.Key) != sentinel {
					more = r.see(e.Key, e.Value)
				}
			case e.Op != chp.OpSynced:
				fault = fmt.Errorf("an event %v, %v of %q", e.Op, e.Cause, e.Key)
			}
			return more && fault == nil
		})
		if err != nil {
			return err
		}
	}
	return fault
}

func (r *chpReplica) get(key string) ([]byte, bool) { return r.client.Get(key) }
