package freelance

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"clustermap/internal/wake"
	"clustermap/sockets"
)

// Client sends requests to servers. All methods are safe for concurrent use.
type Client struct {
	opts ClientOptions
	done chan struct{} // closed by Close

	running sync.WaitGroup // the clock, and a receiver for each link

	// mu is a leaf lock: nothing is sent while it is held.
	mu       sync.Mutex
	closed   bool
	links    []*link // in order of preference; copied on change
	pending  map[uint64]*call
	number   uint64 // of the last request
	rotation int    // where the next request begins (RoundRobin)
	stats    ClientStats
}

// Format implements [fmt.Formatter]. It writes the name of the type for every verb: its
// options may have a secret key, and other fields change while it is in use.
func (c *Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "freelance.Client") }

// NewClient returns a client that connects to its servers in the background; the
// servers may start later. The error is one or more *OptionError, or a
// *sockets.EndpointError. The client runs until Close.
func NewClient(o ClientOptions) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{opts: o, done: make(chan struct{}), pending: map[uint64]*call{}}
	for _, s := range o.Servers {
		if err := c.Connect(s); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	c.running.Go(c.clock)
	return c, nil
}

// Connect adds a server after the others. The client connects in the background, and
// reconnects when the connection ends. Connecting to an endpoint again does nothing.
func (c *Client) Connect(endpoint string) error {
	return c.ConnectSecure(endpoint, c.opts.Security)
}

// ConnectSecure is Connect with its own security, for a server with a different CURVE
// key.
func (c *Client) ConnectSecure(endpoint string, s sockets.Security) error {
	l, err := c.newLink(endpoint, s)
	if err != nil {
		return err
	}
	c.mu.Lock()
	added := !c.closed && c.find(endpoint) == nil
	closed := c.closed
	if added {
		c.links = append(slices.Clip(c.links), l)
		c.running.Go(func() { receive(l.router) })
	}
	c.mu.Unlock()
	switch {
	case closed:
		return errors.Join(ErrClosed, l.router.Close())
	case !added:
		return l.router.Close()
	}
	if err := l.router.Connect(endpoint); err != nil {
		return errors.Join(err, c.Disconnect(endpoint))
	}
	return nil
}

// Disconnect removes a server. Requests that wait for its reply go to another server.
func (c *Client) Disconnect(endpoint string) error {
	c.mu.Lock()
	l := c.find(endpoint)
	if l == nil {
		c.mu.Unlock()
		return ErrUnknownServer
	}
	c.links = slices.DeleteFunc(slices.Clone(c.links), func(other *link) bool { return other == l })
	c.lost(l)
	c.mu.Unlock()
	return l.router.Close()
}

// find returns the link of an endpoint, or nil. mu must be held.
func (c *Client) find(endpoint string) *link {
	for _, l := range c.links {
		if l.endpoint == endpoint {
			return l
		}
	}
	return nil
}

// lost records that a link has lost its connection. mu must be held.
func (c *Client) lost(l *link) {
	peer := l.peer
	l.peer, l.silent = nil, false
	c.wakeWaiting(peer)
}

// wakeWaiting wakes the calls that wait for a reply over a connection. mu must be held.
func (c *Client) wakeWaiting(peer *sockets.Peer) {
	for _, k := range c.pending {
		if peer != nil && k.waitsFor() == peer {
			wake.Signal(k.wake)
		}
	}
}

// gained records that a link has become usable. mu must be held.
func (c *Client) gained(l *link) {
	l.silent = false
	c.wakeUnsent()
}

// wakeUnsent wakes the calls that wait for a server. mu must be held.
func (c *Client) wakeUnsent() {
	for _, k := range c.pending {
		if k.current == none {
			wake.Signal(k.wake)
		}
	}
}

// clock pings servers and detects silent ones.
func (c *Client) clock() {
	interval := max(c.opts.PingInterval/4, time.Millisecond)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ticker.C:
			now := time.Now()
			// If this process did not run for some time, messages of the servers may
			// still wait to be read.
			c.tick(now, now.Sub(last) < 2*interval)
			last = now
		case <-c.done:
			return
		}
	}
}

// tick pings servers that are due, and marks them as silent if expire is set.
func (c *Client) tick(now time.Time, expire bool) {
	c.mu.Lock()
	links := c.links
	for _, l := range links {
		l.due = nil
		if l.peer == nil {
			continue
		}
		if !now.Before(later(l.heard, l.pinged).Add(c.opts.PingInterval)) {
			c.pinging(l, now)
			l.due = l.peer
		}
		if !expire || now.Before(l.heard.Add(c.opts.ServerTTL)) {
			continue
		}
		if !l.silent {
			c.markSilent(l)
			c.wakeWaiting(l.peer)
		}
		if !c.awaits(l.peer) {
			l.peer.Disconnect(ErrSilent)
			// A message that is still in flight must not make it usable again.
			c.lost(l)
			l.err = ErrSilent
		}
	}
	c.mu.Unlock()
	for _, l := range links {
		if l.due != nil {
			l.ping(l.due)
		}
	}
}

// awaits reports whether a request in progress was sent over a connection. mu must be
// held.
func (c *Client) awaits(peer *sockets.Peer) bool {
	for _, k := range c.pending {
		if k.tried(peer) != none {
			return true
		}
	}
	return false
}

// Close ends the client and waits for its goroutines. Requests in progress return
// ErrClosed. Closing a closed client does nothing.
func (c *Client) Close() error {
	c.mu.Lock()
	links := c.links
	c.links = nil
	if !c.closed {
		c.closed = true
		close(c.done)
	}
	c.mu.Unlock()
	var errs []error
	for _, l := range links {
		errs = append(errs, l.router.Close())
	}
	c.running.Wait()
	return errors.Join(errs...)
}
