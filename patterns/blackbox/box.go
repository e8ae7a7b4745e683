package blackbox

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"

	"clustermap/patterns/internal/subscribe"
)

// Box is a subscriber divided into shards. All methods are safe for concurrent use.
type Box struct {
	shards  []*shard
	workers []*worker
	running sync.WaitGroup
	closing sync.Once
}

// New returns a Box that connects in the background and receives until Close. The error
// is one or more *OptionError, or an error of package sockets for endpoints and
// Options.Socket.
func New(o Options) (*Box, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Box{}
	seed := maphash.MakeSeed()
	for i, parts := range o.Shards {
		s := &shard{index: i, seed: seed, key: o.Key, inline: o.Workers == 0}
		if s.sub, err = subscribe.To(parts.Topics, parts.Connect, o.Socket); err != nil {
			return nil, errors.Join(err, b.Close())
		}
		for range max(o.Workers, 1) {
			w := &worker{shard: s, number: len(b.workers), handle: o.Handle}
			w.queue.init(&o)
			w.thread.init()
			s.workers = append(s.workers, w)
			b.workers = append(b.workers, w)
		}
		s.thread.init()
		b.shards = append(b.shards, s)
	}
	b.assign(o.Cores)
	for _, s := range b.shards {
		b.running.Go(s.run)
		if s.inline {
			continue
		}
		for _, w := range s.workers {
			b.running.Go(w.run)
		}
	}
	return b, nil
}

// assign assigns cores to shards and workers.
func (b *Box) assign(cores []int) {
	if len(cores) == 0 {
		return
	}
	for i, s := range b.shards {
		s.thread.setCore(cores[i%len(cores)])
	}
	if others := cores[min(len(b.shards), len(cores)):]; len(others) > 0 {
		cores = others
	}
	for i, w := range b.workers {
		if !w.shard.inline {
			w.thread.setCore(cores[i%len(cores)])
		}
	}
}

// Workers returns the number of workers of all shards, at least one for each shard.
func (b *Box) Workers() int { return len(b.workers) }

// WaitSubscribed waits until each shard is connected to a publisher, and its
// subscriptions are active at all connected publishers. For libzmq publishers this is
// likely but not certain: see sockets.Sub.WaitSubscribed.
func (b *Box) WaitSubscribed(ctx context.Context) error {
	for _, s := range b.shards {
		if err := s.sub.WaitSubscribed(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close stops receiving, waits for running calls of Handle and for all goroutines of the
// Box, and drops queued batches. Kept batches remain valid. Closing a closed Box waits
// for the first Close and returns nil.
func (b *Box) Close() (err error) {
	b.closing.Do(func() {
		for _, w := range b.workers {
			w.queue.close()
		}
		errs := make([]error, len(b.shards))
		for i, s := range b.shards {
			b.running.Go(func() { errs[i] = s.sub.Close() })
		}
		b.running.Wait()
		for _, w := range b.workers {
			w.queue.discard()
		}
		err = errors.Join(errs...)
	})
	return err
}
