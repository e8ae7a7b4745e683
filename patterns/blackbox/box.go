package blackbox

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"

	"clustermap/sockets"
)

// Box is a subscriber that is divided into shards. All methods are safe for
// concurrent use.
type Box struct {
	shards  []*shard
	workers []*worker
	running sync.WaitGroup
	closing sync.Once
}

// New makes a Box, which connects in the background and receives until Close.
// Faults of the options are *OptionError; those of the endpoints and of
// Options.Socket are package sockets'.
func New(o Options) (*Box, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Box{}
	seed := maphash.MakeSeed()
	for i, parts := range o.Shards {
		s := &shard{index: i, seed: seed, key: o.Key, inside: o.Workers == 0}
		if s.sub, err = subscribe(o.Socket, parts); err != nil {
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
		if s.inside {
			continue
		}
		for _, w := range s.workers {
			b.running.Go(w.run)
		}
	}
	return b, nil
}

// subscribe makes the socket of a shard.
func subscribe(o sockets.Options, parts Shard) (*sockets.Sub, error) {
	sub, err := sockets.NewSub(o)
	if err != nil {
		return nil, err
	}
	for _, topic := range parts.Topics {
		if err := sub.Subscribe(topic); err != nil {
			return nil, errors.Join(err, sub.Close())
		}
	}
	for _, endpoint := range parts.Connect {
		if err := sub.Connect(endpoint); err != nil {
			return nil, errors.Join(err, sub.Close())
		}
	}
	return sub, nil
}

// assign says which goroutine runs on which core.
func (b *Box) assign(cores []int) {
	if len(cores) == 0 {
		return
	}
	for i, s := range b.shards {
		s.thread.wish(cores[i%len(cores)])
	}
	if others := cores[min(len(b.shards), len(cores)):]; len(others) > 0 {
		cores = others
	}
	for i, w := range b.workers {
		if !w.shard.inside {
			w.thread.wish(cores[i%len(cores)])
		}
	}
}

// Workers returns the number of workers of all shards, at least one a shard.
func (b *Box) Workers() int { return len(b.workers) }

// WaitSubscribed waits until each shard has at least one publisher, and its
// subscriptions are in force at all that it is connected to. With libzmq's
// publishers that is likely and not certain: see the method of sockets.Sub.
func (b *Box) WaitSubscribed(ctx context.Context) error {
	for _, s := range b.shards {
		if err := s.sub.WaitSubscribed(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close stops receiving, waits for the calls of Handle that are running, and drops
// the batches that are queued, which then count as dropped. It returns when every goroutine of the Box
// has ended. Batches that are kept remain valid. Closing a closed Box waits
// for the first Close and returns nil.
func (b *Box) Close() (err error) {
	b.closing.Do(func() {
		for _, w := range b.workers {
			w.queue.close()
		}
		faults := make([]error, len(b.shards))
		for i, s := range b.shards {
			b.running.Go(func() { faults[i] = s.sub.Close() })
		}
		b.running.Wait()
		for _, w := range b.workers {
			w.queue.discard()
		}
		err = errors.Join(faults...)
	})
	return err
}
