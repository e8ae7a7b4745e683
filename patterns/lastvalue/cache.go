package lastvalue

import (
	"context"
	"errors"
	"sync"
	"time"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// Cache is a last-value cache between publishers and subscribers. It runs from New
// to Close. All methods are safe for concurrent use.
type Cache struct {
	in      *sockets.Sub
	out     *sockets.XPub
	started time.Time // ages are counted from here, by the monotonic clock

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	// mu makes the order of everything that subscribers are sent. It comes before
	// all locks of the sockets.
	mu      sync.Mutex
	values  values
	joiners map[*sockets.Peer]*joiner
	scratch []byte // of fill
	stats   Stats  // the counters that are neither values' nor computed

	landed landed
}

// interval returns how often messages that are too old are looked for, and memory is
// given back. What subscribers are sent is looked at in any case.
func interval(expiry time.Duration) time.Duration {
	const least, most = 10 * time.Millisecond, time.Second
	if expiry == 0 {
		return most
	}
	return min(most, max(expiry/4, least))
}

// New starts a cache without publishers and subscribers. It returns all faults of
// the options as one error.
func New(o Options) (*Cache, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Cache{started: time.Now(), joiners: map[*sockets.Peer]*joiner{}}
	c.values.init(o)
	c.landed.wake = make(chan struct{}, 1)
	if c.in, err = sockets.NewSub(o.Publisher); err != nil {
		return nil, err
	}
	if c.out, err = sockets.NewXPub(o.Subscribers); err != nil {
		return nil, errors.Join(err, c.in.Close())
	}
	if err = c.in.Subscribe(""); err != nil {
		return nil, errors.Join(err, c.in.Close(), c.out.Close())
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.running.Go(c.forward)
	c.running.Go(c.listen)
	c.running.Go(func() { c.deliver(interval(o.Expiry)) })
	return c, nil
}

// ConnectPublisher connects to a publisher, as sockets.Sub.Connect does. There
// may be several; the message that arrives last is a topic's last value.
func (c *Cache) ConnectPublisher(endpoint string) error { return c.in.Connect(endpoint) }

// BindPublisher binds an endpoint for publishers that connect to the cache, and
// returns it with the port that was chosen if none was given.
func (c *Cache) BindPublisher(ctx context.Context, endpoint string) (actual string, err error) {
	if err := c.in.Bind(ctx, endpoint); err != nil {
		return "", err
	}
	return c.in.LastEndpoint(), nil
}

// Bind binds an endpoint for subscribers, and returns it with the port that was
// chosen if none was given.
func (c *Cache) Bind(ctx context.Context, endpoint string) (actual string, err error) {
	if err := c.out.Bind(ctx, endpoint); err != nil {
		return "", err
	}
	return c.out.LastEndpoint(), nil
}

// Connect connects to a subscriber that is bound, such as a forwarder.
func (c *Cache) Connect(endpoint string) error { return c.out.Connect(endpoint) }

// Close ends the cache and its connections. It waits for what is queued for
// subscribers as Options.Subscribers.Linger says.
func (c *Cache) Close() error {
	c.cancel()
	c.running.Wait()
	return errors.Join(c.in.Close(), c.out.Close())
}

// now is the age of the cache.
func (c *Cache) now() time.Duration { return time.Since(c.started) }

// forward takes messages from the publishers until the cache is closed.
func (c *Cache) forward() {
	var b sockets.Batch
	defer b.Release()
	// RecvBatch looks at the context only when it has to wait: without this check
	// publishers that never pause would keep Close waiting.
	for c.ctx.Err() == nil && c.in.RecvBatch(c.ctx, &b) == nil {
		c.publish(&b)
	}
}

// publish keeps the messages of a batch and sends them to those who subscribed.
func (c *Cache) publish(b *sockets.Batch) {
	wire, spans := b.Wire(), b.Spans()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	c.values.expire(now)
	for i := range spans {
		message := b.Message(i)
		topic, _ := message.Next()
		c.values.put(topic, message, now)
	}
	for len(spans) > 0 {
		n := 1 // messages that lie side by side
		for n < len(spans) && spans[n].Start == spans[n-1].End {
			n++
		}
		// It does not wait, and a closed socket ends forward.
		_ = c.out.SendSpans(c.ctx, wire[spans[0].Start:spans[n-1].End], spans[:n], nil)
		spans = spans[n:]
	}
}

// Get returns a copy of the last message of a topic, and whether there is one.
func (c *Cache) Get(topic string) (sockets.Message, bool) {
	c.mu.Lock()
	c.values.expire(c.now())
	wire := zmtp.Message(c.values.append(nil, []byte(topic)))
	c.mu.Unlock()
	if len(wire) == 0 {
		return nil, false
	}
	m := make(sockets.Message, 0, wire.Len())
	for len(wire) > 0 {
		var body []byte
		body, wire = wire.Next()
		m = append(m, body)
	}
	return m, true
}

// Stats are figures about a Cache.
type Stats struct {
	Topics int // topics that have a last value
	Bytes  int // bytes that count for Options.MaxBytes

	Messages uint64 // messages from publishers
	TooLarge uint64 // of these, larger than Options.MaxBytes, and so not kept
	Evicted  uint64 // topics forgotten for others
	Expired  uint64 // topics forgotten for their age

	Subscriptions uint64 // subscriptions that were answered
	Replayed      uint64 // last values sent to new subscribers
	Joining       int    // subscribers that are being sent last values
	Ignored       uint64 // messages of subscribers that are no subscriptions
}

// Stats returns figures of one moment.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values.expire(c.now())
	v, s := &c.values, c.stats
	s.Topics, s.Bytes = v.len(), v.bytes()
	s.Messages, s.TooLarge, s.Evicted, s.Expired = v.updates, v.tooLarge, v.evicted, v.expired
	s.Joining = len(c.joiners)
	return s
}

// Subscribers returns a reading of every connection of a subscriber, sorted by
// endpoint and address, and Publishers one of every connection to a publisher.
func (c *Cache) Subscribers() []sockets.PeerStats { return c.out.Peers() }

// Publishers is described with Subscribers.
func (c *Cache) Publishers() []sockets.PeerStats { return c.in.Peers() }
