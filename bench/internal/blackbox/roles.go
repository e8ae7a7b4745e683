package blackbox

import (
	"context"
	"fmt"
	"io"

	"clustermap/patterns/blackbox"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Spec tells a subscriber what to do.
type Spec struct {
	Endpoint string
	Count    int64 // messages, whole cycles
	Shards   int
	Workers  int  // of each shard; 0: the shards do the work
	Filtered bool // also a single shard subscribes to topics
	Pin      bool // each goroutine or thread to a core
}

// Topics returns the prefixes of a shard.
func (s *Spec) Topics(shard int) []string { return topics(shard, s.Shards, s.Filtered) }

// Side is a subscriber to measure.
type Side func(context.Context, Spec) (Figure, error)

// publish binds, says where, waits for subscriptions to everything, and sends.
func publish(ctx context.Context, count int64, out io.Writer) error {
	pub, err := sockets.NewPub(sockets.Options{
		FullPolicy: sockets.Block, SendHWM: -1, SendHWMOctets: 4 << 20, Linger: sockets.LingerForever,
	})
	if err != nil {
		return err
	}
	if err := pub.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		return err
	}
	fmt.Fprintln(out, pub.LastEndpoint())
	for i := range Letters {
		if err := pub.WaitSubscribers(ctx, []byte(Letter(i)), 1); err != nil {
			return err
		}
	}
	batches, _ := feed()
	for sent := int64(0); sent < count; {
		for _, b := range batches {
			if err := pub.SendWire(ctx, b, batchMessages, b); err != nil {
				return err
			}
			sent += batchMessages
		}
	}
	return pub.CloseContext(ctx)
}

// ours is patterns/blackbox.
func ours(ctx context.Context, s Spec) (Figure, error) {
	c := newCounter(s.Count, s.Shards*max(s.Workers, 1))
	o := blackbox.Options{
		Connect: []string{s.Endpoint},
		Workers: s.Workers,
		Key: func(m zmtp.Message) []byte {
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
		o.Shards = append(o.Shards, blackbox.Shard{Topics: s.Topics(i)})
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
