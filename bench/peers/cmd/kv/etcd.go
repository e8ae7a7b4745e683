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

	"clustermap/internal/bench/link"
	"clustermap/internal/bench/pipeline"
)

// etcdSystem is one etcd server, in its own process. It does more than the others: each
// update goes through a log of Raft and a database of versions. To be as fast as it can
// with one server, it does not flush the log (UnsafeNoFsync). The publisher has 512 Puts
// under way over four connections; those of one key follow each other. The replica is a
// watch of all keys; the table behind it is ours. etcd does not conflate.
var etcdSystem = system{Pipeline: pipeline.Pipeline{Name: "etcd", Serve: serveEtcd, Publish: publishEtcd, Follow: followEtcd}, share: 100, lanes: 512}

const (
	etcdConnections = 4
	etcdQueue       = 64      // updates that wait in each lane
	etcdQuota       = 8 << 30 // bytes of the database, the most that etcd suggests
)

func serveEtcd(p *link.Peer, ready func(...string)) error {
	ctx := p.Context()
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

func dialEtcd(p *link.Peer) (*clientv3.Client, error) {
	ctx := p.Context()
	c, err := clientv3.New(clientv3.Config{Endpoints: p.Servers, DialTimeout: time.Minute, Context: ctx})
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

func publishEtcd(peer *link.Peer) (pipeline.Publisher, error) {
	p := &etcdPublisher{}
	p.ctx, p.fail = context.WithCancelCause(peer.Context())
	var clients []*clientv3.Client
	for range etcdConnections {
		c, err := dialEtcd(peer)
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	for i := range peer.Lanes {
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

func (p *etcdPublisher) Set(lane int, key string, value []byte) error {
	p.busy.Add(1)
	select {
	case p.lanes[lane] <- etcdPut{key, string(value)}:
		return nil
	case <-p.ctx.Done():
		p.busy.Done()
		return context.Cause(p.ctx)
	}
}

func (p *etcdPublisher) Push() error { return nil } // nothing is buffered for long

func (p *etcdPublisher) Settle(context.Context) error {
	p.busy.Wait() // if ctx ends, every Put fails at once
	return context.Cause(p.ctx)
}

type etcdReplica struct {
	held
	watch clientv3.WatchChan
}

func followEtcd(p *link.Peer, r *pipeline.Receiver) (pipeline.Replica, error) {
	c, err := dialEtcd(p)
	if err != nil {
		return nil, err
	}
	w := c.Watch(p.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if first, ok := <-w; !ok || first.Err() != nil || !first.Created {
		return nil, fmt.Errorf("there is no watch: %w", first.Err())
	}
	return &etcdReplica{newHeld(p, r), w}, nil
}

// Run follows the watch.
func (r *etcdReplica) Run(ctx context.Context) error {
	for {
		select {
		case answer, ok := <-r.watch:
			if err := answer.Err(); err != nil || !ok {
				return fmt.Errorf("the watch ended: %w", err)
			}
			for _, e := range answer.Events {
				if !r.apply(e.Kv.Key, e.Kv.Value) {
					return nil
				}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
