package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

// etcdSystem is one etcd server, in its own process. It does more than the others: each
// update goes through a log of Raft and a database of versions. To be as fast as it can
// with one server, it does not flush the log (UnsafeNoFsync). The publisher has 512 Puts
// under way over four connections; those of one key follow each other. The replica is a
// watch of all keys; the table behind it is ours. etcd does not conflate.
var etcdSystem = system{name: "etcd", share: 100, lanes: 512, serve: serveEtcd, publish: publishEtcd, follow: followEtcd}

const (
	etcdConnections = 4
	etcdQueue       = 64      // updates that wait in each lane
	etcdQuota       = 8 << 30 // bytes of the database, the most that etcd suggests
)

func serveEtcd(ctx context.Context, ready func(...string)) error {
	dir, err := os.MkdirTemp("", "kv-etcd-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c := embed.NewConfig()
	local := []url.URL{{Scheme: "http", Host: loopback}}
	c.Dir, c.LogLevel, c.QuotaBackendBytes, c.UnsafeNoFsync = dir, "fatal", etcdQuota, true
	c.ListenClientUrls, c.AdvertiseClientUrls, c.ListenPeerUrls, c.AdvertisePeerUrls = local, local, local, local
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	s, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	defer s.Close()
	select {
	case <-s.Server.ReadyNotify():
	case err := <-s.Err():
		return err
	case <-ctx.Done():
		return nil
	}
	ready(s.Clients[0].Addr().String())
	select {
	case err := <-s.Err():
		return err
	case <-ctx.Done():
		return nil
	}
}

func dialEtcd(ctx context.Context, servers []string) (*clientv3.Client, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: servers, DialTimeout: time.Minute, Context: ctx})
	if err == nil {
		context.AfterFunc(ctx, func() { c.Close() })
	}
	return c, err
}

// etcdPublisher has a goroutine for each lane, which waits for the answer to each Put.
type etcdPublisher struct {
	ctx   context.Context
	fail  context.CancelCauseFunc
	lanes []chan etcdPut
	busy  sync.WaitGroup
}

type etcdPut struct{ key, value string }

func publishEtcd(ctx context.Context, servers []string, w workload) (publisher, error) {
	p := &etcdPublisher{}
	p.ctx, p.fail = context.WithCancelCause(ctx)
	var clients []*clientv3.Client
	for range etcdConnections {
		c, err := dialEtcd(ctx, servers)
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	for i := range w.Lanes {
		lane := make(chan etcdPut, etcdQueue)
		p.lanes = append(p.lanes, lane)
		go p.put(clients[i%len(clients)], lane)
	}
	return p, nil
}

func (p *etcdPublisher) put(c *clientv3.Client, lane <-chan etcdPut) {
	for u := range lane {
		if _, err := c.Put(p.ctx, u.key, u.value); err != nil {
			p.fail(err)
		}
		p.busy.Done()
	}
}

func (p *etcdPublisher) set(u update) error {
	p.busy.Add(1)
	select {
	case p.lanes[u.lane] <- etcdPut{u.key, string(u.value)}:
		return nil
	case <-p.ctx.Done():
		p.busy.Done()
		return context.Cause(p.ctx)
	}
}

func (p *etcdPublisher) push() error { return nil } // nothing is buffered for long

func (p *etcdPublisher) settle(context.Context) error {
	p.busy.Wait() // if ctx ends, every Put fails at once
	return context.Cause(p.ctx)
}

type etcdReplica struct {
	*table
	see   func(key, value []byte) bool
	watch clientv3.WatchChan
}

func followEtcd(ctx context.Context, servers []string, see func(key, value []byte) bool) (replica, error) {
	c, err := dialEtcd(ctx, servers)
	if err != nil {
		return nil, err
	}
	w := c.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if first, ok := <-w; !ok || first.Err() != nil || !first.Created {
		return nil, fmt.Errorf("there is no watch: %w", first.Err())
	}
	return &etcdReplica{newTable(), see, w}, nil
}

func (r *etcdReplica) run(ctx context.Context) error {
	for {
		select {
		case answer, ok := <-r.watch:
			if err := answer.Err(); err != nil || !ok {
				return fmt.Errorf("the watch ended: %w", err)
			}
			for _, e := range answer.Events {
				r.put(e.Kv.Key, e.Kv.Value)
				if !r.see(e.Kv.Key, e.Kv.Value) {
					return nil
				}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
