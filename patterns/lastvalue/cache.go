package lastvalue

import (
	"context"
	"errors"
	"sync"
	"time"

	"clustermap/internal/hooks"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Cache is a last value cache between publishers and subscribers. It runs from New to
// Close. All methods are safe for concurrent use.
type Cache struct {
	in      *sockets.Sub
	out     *sockets.XPub
	started time.Time // times in values are relative to it

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	// mu defines the order of all messages to subscribers. It is acquired before
	// any lock of the sockets.
	mu      sync.Mutex
	values  values
	joiners map[*sockets.Peer]*joiner
	scratch []byte // used by fill
	stats   Stats  // the counters that values does not have

	ready ready
}

// interval returns how often deliver removes expired topics and frees memory. Messages
// to subscribers are checked for expiry in any case.
func interval(expiry time.Duration) time.Duration {
	const least, most = 10 * time.Millisecond, time.Second
	if expiry == 0 {
		return most
	}
	return min(most, max(expiry/4, least))
}

// New starts a cache without publishers and subscribers. Errors for invalid options are
// *OptionError or *sockets.OptionError.
func New(o Options) (*Cache, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Cache{started: time.Now(), joiners: map[*sockets.Peer]*joiner{}}
	c.values.init(o)
	c.ready.wake = make(chan struct{}, 1)
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

// ConnectPublisher connects to a publisher: see sockets.Sub.Connect. A cache can have
// several publishers; the last value of a topic is the message that arrived last.
func (c *Cache) ConnectPublisher(endpoint string) error { return c.in.Connect(endpoint) }

// BindPublisher listens on an endpoint for publishers. It returns the endpoint with the
// port that the system chose, if any.
func (c *Cache) BindPublisher(ctx context.Context, endpoint string) (actual string, err error) {
	if err := c.in.Bind(ctx, endpoint); err != nil {
		return "", err
	}
	return c.in.LastEndpoint(), nil
}

// Bind listens on an endpoint for subscribers. It returns the endpoint with the port
// that the system chose, if any.
func (c *Cache) Bind(ctx context.Context, endpoint string) (actual string, err error) {
	if err := c.out.Bind(ctx, endpoint); err != nil {
		return "", err
	}
	return c.out.LastEndpoint(), nil
}

// Connect connects to a subscriber that listens, such as a forwarder.
func (c *Cache) Connect(endpoint string) error { return c.out.Connect(endpoint) }

// Close ends the cache and its connections. It waits up to Options.Subscribers.Linger
// for queued messages to be written.
func (c *Cache) Close() error {
	c.cancel()
	c.running.Wait()
	return errors.Join(c.in.Close(), c.out.Close())
}

func (c *Cache) now() time.Duration { return time.Since(c.started) }

// forward receives messages from publishers until the cache is closed.
func (c *Cache) forward() {
	var b hooks.Batch
	defer b.Release()
	// RecvBatch checks the context only when it has to wait. Without this check,
	// publishers that never pause would block Close.
	for c.ctx.Err() == nil && c.in.RecvBatch(c.ctx, (*sockets.Batch)(&b)) == nil {
		c.publish(&b)
	}
}

// publish stores the messages of a batch and sends them to the subscribers.
func (c *Cache) publish(b *hooks.Batch) {
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
		n := 1 // contiguous messages
		for n < len(spans) && spans[n].Start == spans[n-1].End {
			n++
		}
		// It does not wait, and if the socket is closed, forward ends anyway.
		_ = hooks.SendSpans(c.ctx, c.out, wire[spans[0].Start:spans[n-1].End], spans[:n], nil)
		spans = spans[n:]
	}
}

// Get returns a copy of the last message of a topic, if there is one.
func (c *Cache) Get(topic string) (sockets.Message, bool) {
	c.mu.Lock()
	c.values.expire(c.now())
	wire := zmtp.WireMessage(c.values.append(nil, []byte(topic)))
	c.mu.Unlock()
	return wire.AppendFrames(nil), len(wire) > 0
}

// Stats has the counters of a Cache.
type Stats struct {
	Topics int // topics with a last value
	Bytes  int // bytes that count for Options.MaxBytes

	Messages uint64 // received from publishers
	TooLarge uint64 // messages not kept because they exceed Options.MaxBytes
	Evicted  uint64 // topics removed because the cache was full
	Expired  uint64 // topics removed by Options.Expiry

	Subscriptions uint64 // accepted
	Replayed      uint64 // last values sent to new subscribers
	Joining       int    // subscribers that are being sent last values now
	Ignored       uint64 // messages from subscribers that are not subscriptions
}

// Stats returns the current counters.
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

// Subscribers returns the statistics of the subscribers' connections, sorted by endpoint
// and address.
func (c *Cache) Subscribers() []sockets.PeerStats { return c.out.Peers() }

// Publishers returns the statistics of the publishers' connections, sorted by endpoint
// and address.
func (c *Cache) Publishers() []sockets.PeerStats { return c.in.Peers() }
