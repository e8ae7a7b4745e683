package systems

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"clustermap/internal/bench/link"
	"clustermap/internal/bench/pipeline"
)

// EtcdLanes is how many Puts a publisher has under way.
const EtcdLanes = 512

// EtcdQuota is the bytes of the database, the most that etcd suggests.
const EtcdQuota = 8 << 30

const (
	etcdConnections = 4
	etcdQueue       = 64 // updates that wait in each lane
)

// ServeEtcd runs a member until the context ends.
func ServeEtcd(ctx context.Context, c *embed.Config, ready func(...string)) error {
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

// DialEtcd connects. The connections are closed when ctx ends.
func DialEtcd(ctx context.Context, servers []string) (*clientv3.Client, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: servers, DialTimeout: time.Minute, Context: ctx, Logger: zap.NewNop()})
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

// PublishEtcd returns a publisher with a Put under way in each lane, over four connections to the first server. The
// Puts of a lane follow each other.
func PublishEtcd(peer *link.Peer) (pipeline.Publisher, error) {
	p := &etcdPublisher{}
	p.ctx, p.fail = context.WithCancelCause(peer.Context())
	var clients []*clientv3.Client
	for range etcdConnections {
		c, err := DialEtcd(peer.Context(), peer.Servers[:1])
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
	Held
	watch clientv3.WatchChan
}

// FollowEtcd returns a replica that watches all keys at the first server; the table behind the watch is ours. etcd does not
// conflate.
func FollowEtcd(p *link.Peer, r *pipeline.Receiver) (pipeline.Replica, error) {
	c, err := DialEtcd(p.Context(), p.Servers[:1])
	if err != nil {
		return nil, err
	}
	w := c.Watch(p.Context(), Prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if first, ok := <-w; !ok || first.Err() != nil || !first.Created {
		return nil, fmt.Errorf("there is no watch: %w", first.Err())
	}
	return &etcdReplica{NewHeld(p, r), w}, nil
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
				if !r.Apply(e.Kv.Key, e.Kv.Value) {
					return nil
				}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
