package main

import (
	"context"

	"clustermap/bench/peers/internal/systems"
	"clustermap/internal/bench/link"
	"clustermap/internal/bench/pipeline"
)

// trackingSystem is Redis with its client-side caching: the publisher only sets, and a
// replica is told which keys have changed (CLIENT TRACKING ON BCAST) and fetches them with
// MGET, all that it has been told of at a time, at most 1,000. It Conflates: a replica
// sees the last value of each key, and of those before only some. Server, settings and
// protocol are those of redisSystem.
var trackingSystem = systems.System{
	Pipeline: pipeline.Pipeline{Name: "redis-tracking", Serve: serveRedis, Publish: publishTracking, Follow: followTracking},
	Share:    4, Conflates: true,
}

// trackingFetch is how many keys are fetched at a time.
const trackingFetch = 1000

func publishTracking(p *link.Peer) (pipeline.Publisher, error) { return newRedisPublisher(p, false) }

type trackingReplica struct {
	systems.Held
	c *resp

	changed  []string            // keys to fetch, in the order of their first change
	waiting  map[string]struct{} // the same keys
	fetching []string            // keys that have been asked for
}

func followTracking(p *link.Peer, r *pipeline.Receiver) (pipeline.Replica, error) {
	c, err := dialRedis(p)
	if err != nil {
		return nil, err
	}
	c.command("HELLO", "3")
	c.command("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", systems.Prefix)
	if err := c.push(); err != nil {
		return nil, err
	}
	for range 2 {
		if err := c.skip(); err != nil {
			return nil, err
		}
	}
	return &trackingReplica{Held: systems.NewHeld(p, r), c: c, waiting: map[string]struct{}{}}, nil
}

// Run fetches what has changed.
func (r *trackingReplica) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { r.c.Close() })()
	for {
		kind, err := r.c.in.Peek(1)
		if err != nil {
			return err
		}
		more := true
		if kind[0] == '>' {
			err = r.invalidated()
		} else {
			more, err = r.fetched()
		}
		if err != nil || !more {
			return err
		}
		// Invalidations that have arrived already may name more keys.
		if len(r.fetching) == 0 && len(r.changed) > 0 && (r.c.in.Buffered() == 0 || len(r.changed) >= trackingFetch) {
			if err := r.fetch(); err != nil {
				return err
			}
		}
	}
}

// invalidated reads which keys have changed.
func (r *trackingReplica) invalidated() error {
	if err := r.c.count('>', 2); err != nil {
		return err
	}
	if _, err := r.c.bulk(); err != nil {
		return err
	}
	n, err := r.c.number('*')
	if err != nil {
		return err
	}
	for range n {
		key, err := r.c.bulk()
		if err != nil {
			return err
		}
		if _, ok := r.waiting[string(key)]; !ok {
			name := string(key)
			r.waiting[name] = struct{}{}
			r.changed = append(r.changed, name)
		}
	}
	return nil
}

// fetch asks for keys that have changed.
func (r *trackingReplica) fetch() error {
	n := min(len(r.changed), trackingFetch)
	r.fetching = append(r.fetching, r.changed[:n]...)
	r.changed = r.changed[:copy(r.changed, r.changed[n:])]
	r.c.begin(1 + n)
	r.c.out = appendBulk(r.c.out, "MGET")
	for _, key := range r.fetching {
		delete(r.waiting, key) // a change from now on means another fetch
		r.c.out = appendBulk(r.c.out, key)
	}
	return r.c.push()
}

// fetched reads the values that were asked for.
func (r *trackingReplica) fetched() (more bool, err error) {
	if err := r.c.count('*', len(r.fetching)); err != nil {
		return false, err
	}
	for _, name := range r.fetching {
		value, err := r.c.bulk()
		if err != nil {
			return false, err
		}
		if !r.Apply([]byte(name), value) {
			return false, nil
		}
	}
	r.fetching = r.fetching[:0]
	return true, nil
}
