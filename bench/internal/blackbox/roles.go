package blackbox

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"clustermap/internal/hooks"
	"clustermap/patterns/blackbox"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Spec is the task of a publisher and a subscriber.
type Spec struct {
	Endpoints []string // one, or one for each shard
	Count     int64    // messages, whole cycles
	Shards    int
	Workers   int  // of each shard; 0: the shards do the work
	Channels  bool // the publisher has a socket for each shard, with that shard's topics
	Filtered  bool // subscribe to topics where everything would do
	Pin       bool // each goroutine or thread to a core
}

// Topics returns the prefixes of a shard.
func (s *Spec) Topics(shard int) (all []string) {
	if (s.Shards == 1 || s.Channels) && !s.Filtered {
		return []string{""}
	}
	for i := shard; i < letters; i += s.Shards {
		all = append(all, letter(i))
	}
	return all
}

// Endpoint returns where a shard connects to.
func (s *Spec) Endpoint(shard int) string { return s.Endpoints[shard%len(s.Endpoints)] }

// Side is a subscriber to measure.
type Side func(context.Context, Spec) (Figure, error)

// publish binds, says where, waits for subscriptions to everything, and sends.
func publish(ctx context.Context, s Spec, say func(any)) error {
	n := 1
	if s.Channels {
		n = s.Shards
	}
	pubs := make([]*sockets.Pub, n)
	for i := range pubs {
		pub, err := sockets.NewPub(sockets.Options{
			FullPolicy: sockets.PolicyBlock, SendHWM: sockets.Unlimited, SendHWMBytes: 4 << 20, Linger: sockets.LingerForever,
		})
		if err != nil {
			return err
		}
		if err := pub.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
			return err
		}
		pubs[i] = pub
		s.Endpoints = append(s.Endpoints, pub.LastEndpoint())
	}
	say(s.Endpoints)
	for i := range letters {
		if err := pubs[i%n].WaitSubscribers(ctx, letter(i), 1); err != nil {
			return err
		}
	}
	faults := make([]error, n)
	var sending sync.WaitGroup
	for i, pub := range pubs {
		sending.Go(func() { faults[i] = send(ctx, pub, feed(i, n), s.Count/cycle) })
	}
	sending.Wait()
	return errors.Join(faults...)
}

// send sends the cycles of a channel, and waits until they are written.
func send(ctx context.Context, pub *sockets.Pub, batches []batch, cycles int64) error {
	sizes := make([]int, len(batches))
	for i, b := range batches {
		sizes[i] = len(b) / zmtp.FrameSize(Size)
	}
	for range cycles {
		for i, b := range batches {
			if err := hooks.SendWire(ctx, pub, b, sizes[i], b); err != nil {
				return err
			}
		}
	}
	return pub.CloseContext(ctx)
}

// ours is patterns/blackbox.
func ours(ctx context.Context, s Spec) (Figure, error) {
	c := newCounter(s.Count, s.Shards*max(s.Workers, 1))
	o := blackbox.Options{
		Workers: s.Workers,
		Key: func(m zmtp.WireMessage) []byte {
			body, _ := m.Next()
			return body[:AtKey]
		},
		Handle: func(b *blackbox.Batch) {
			c.start()
			check := &c.checks[b.Worker()]
			for i := range b.Len() {
				check.message(b.Message(i))
			}
			c.add(b.Len())
		},
	}
	for i := range s.Shards {
		o.Shards = append(o.Shards, blackbox.Shard{Topics: s.Topics(i), Connect: []string{s.Endpoint(i)}})
	}
	if s.Pin {
		o.Cores = blackbox.AllowedCores()
	}
	box, err := blackbox.New(o)
	if err != nil {
		return Figure{}, err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return Figure{}, fmt.Errorf("%w after %d messages", ctx.Err(), c.counted.Load())
	}
	if err := box.Close(); err != nil {
		return Figure{}, err
	}
	return c.figure()
}
