package majordomo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
)

// Client sends requests to services. All methods are safe for concurrent use, and any
// number of requests may be in flight at once. Requests from many goroutines are
// pipelined.
//
// With a broker of this package all requests share one connection. With others, each
// request in flight has its own: see ClientOptions.Connections.
type Client struct {
	opts    ClientOptions
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	reach   reach

	mu      sync.Mutex
	links   []*link
	dialing int           // links that are being made
	changed chan struct{} // closed and replaced when a link may be free

	requests, repeated, malformed atomic.Uint64
}

// Format implements [fmt.Formatter]. It writes the name of the type for every verb: its
// options may have a secret key, and other fields change while it is in use.
func (c *Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "majordomo.Client") }

// ClientStats has the counters of a client.
type ClientStats struct {
	Requests    uint64 // calls
	Repeated    uint64 // times a request was sent again on a new connection
	Malformed   uint64 // invalid messages from brokers; each ended its connection
	Connections int    // now, including those that are being made
}

// NewClient returns a client that connects in the background; the broker may start
// later. The error is for invalid options and endpoints.
func NewClient(o ClientOptions) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	setConnecting(&o.Socket, o.Reconnect, o.ReconnectMax, DefaultHeartbeat, DefaultLiveness, nil)
	c := &Client{opts: o, changed: make(chan struct{})}
	c.reach.watch(&c.opts.Socket)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.dialing = 1
	if err := c.connect(); err != nil {
		c.cancel()
		return nil, err
	}
	return c, nil
}

// Close ends the client and waits for its goroutines. Requests in flight return
// ErrClosed. Closing a closed client does nothing.
func (c *Client) Close() error {
	c.mu.Lock()
	c.cancel() // under the mutex, so that connect adds no link afterwards
	c.mu.Unlock()
	c.running.Wait()
	return nil
}

// Stats returns the current counters.
func (c *Client) Stats() ClientStats {
	c.mu.Lock()
	n := len(c.links)
	c.mu.Unlock()
	return ClientStats{c.requests.Load(), c.repeated.Load(), c.malformed.Load(), n}
}

// Request sends a request to a service and waits for the reply, until the context ends.
// The service may get its first worker later. A body without frames is sent as one empty
// frame; the frames are copied.
//
// If the connection is lost, Request sends the request again on a new one, up to
// ClientOptions.Attempts times in all, so it may be executed more than once. Then it
// returns ErrNoReply. Error replies are returned as an *Error: from the broker,
// ErrQueueFull, ErrExpired, ErrWorkerLost or ErrNoService. If the context ends while there is
// no connection, the error is a *NoBrokerError, which says why.
//
// In version 0.2, Request returns the frames of all parts of a reply, in order.
func (c *Client) Request(ctx context.Context, service string, body ...[]byte) (reply [][]byte, err error) {
	var all [][]byte
	last, err := c.request(ctx, service, body, func(part [][]byte) error {
		all = append(all, part...)
		return nil
	}, func() { all = nil })
	if err != nil || all == nil {
		return last, err
	}
	return append(all, last...), nil
}

// RequestParts is like Request for replies in parts (version 0.2). It calls part with the
// frames of each part as it arrives, and returns the last part. An error of part ends
// the call, which returns it. If the connection is lost after a call of part,
// RequestParts does not repeat the request and returns ErrPartial.
func (c *Client) RequestParts(ctx context.Context, service string, part func(frames [][]byte) error, body ...[]byte) (last [][]byte, err error) {
	return c.request(ctx, service, body, part, nil)
}

// request sends a request until there is a reply. It calls restart before it repeats a
// request of which parts of the reply arrived; if restart is nil, it returns ErrPartial.
func (c *Client) request(ctx context.Context, service string, body [][]byte, part func([][]byte) error, restart func()) ([][]byte, error) {
	if !validName([]byte(service)) {
		return nil, ErrService
	}
	if len(body) == 0 {
		body = [][]byte{{}}
	}
	c.requests.Add(1)
	for attempt := 1; ; attempt++ {
		l, err := c.acquire(ctx)
		if err != nil {
			return nil, err
		}
		if attempt > 1 {
			c.repeated.Add(1)
		}
		last, parts, err := l.do(ctx, service, body, part, restart == nil)
		switch {
		case err == nil:
			if e := asError(last); e != nil {
				return nil, e
			}
			return last, nil
		case !errors.Is(err, errLost):
			return nil, err
		case restart == nil && parts > 0:
			return nil, ErrPartial
		case attempt >= c.opts.Attempts:
			return nil, ErrNoReply
		case parts > 0:
			restart()
		}
	}
}

// Available reports whether a service has a worker now (RFC 8: mmi.service).
func (c *Client) Available(ctx context.Context, service string) (bool, error) {
	if !validName([]byte(service)) {
		return false, ErrService
	}
	reply, err := c.Request(ctx, serviceLookup, []byte(service))
	switch {
	case err != nil:
		return false, err
	case len(reply) == 1 && string(reply[0]) == mmiFound:
		return true, nil
	case len(reply) == 1 && string(reply[0]) == mmiNotFound:
		return false, nil
	}
	return false, fmt.Errorf("%w: %q to %s", ErrProtocol, reply, serviceLookup)
}

// Services returns the services of the broker, sorted by name. Only a broker of this
// package supports it; for others the error matches errors.ErrUnsupported (errors.Is).
func (c *Client) Services(ctx context.Context) ([]ServiceStatus, error) {
	reply, err := c.Request(ctx, serviceList)
	switch {
	case err != nil:
		return nil, err
	case len(reply) == 1 && string(reply[0]) == mmiUnknown:
		return nil, fmt.Errorf("majordomo: the broker does not list its services: %w", errors.ErrUnsupported)
	case len(reply)%mmiListedFrames != 1 || string(reply[0]) != mmiFound:
		return nil, fmt.Errorf("%w: %d frames to %s", ErrProtocol, len(reply), serviceList)
	}
	all := []ServiceStatus{}
	for f := reply[1:]; len(f) > 0; f = f[mmiListedFrames:] {
		s := ServiceStatus{Name: string(f[0])}
		for i, n := range []*int{&s.Workers, &s.Waiting, &s.Given} {
			if *n, err = strconv.Atoi(string(f[1+i])); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// acquire returns a link for a request. If the link carries one request at a time, it is
// busy until release.
func (c *Client) acquire(ctx context.Context) (*link, error) {
	for {
		c.mu.Lock()
		if c.ctx.Err() != nil {
			c.mu.Unlock()
			return nil, ErrClosed
		}
		pending, made := c.dialing > 0, false
		for _, l := range c.links {
			switch {
			case l.ctx.Err() != nil: // about to end
			case !l.made():
				pending = true
			case l.ours():
				c.mu.Unlock()
				return l, nil
			case !l.busy:
				l.busy = true
				c.mu.Unlock()
				return l, nil
			default:
				made = true
			}
		}
		if !pending && len(c.links) < c.opts.Connections {
			c.dialing++
			c.mu.Unlock()
			if err := c.connect(); err != nil {
				return nil, err
			}
			continue
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			if made { // all connections are in use
				return nil, context.Cause(ctx)
			}
			return nil, c.reach.ended(ctx, c.opts.Broker)
		case <-c.ctx.Done():
			return nil, ErrClosed
		}
	}
}

// connect makes a link. The caller has incremented c.dialing.
func (c *Client) connect() error {
	l, err := c.dial()
	c.mu.Lock()
	c.dialing--
	c.notify()
	closed := c.ctx.Err() != nil
	if err == nil && !closed {
		c.links = append(c.links, l)
		c.running.Go(l.run)
	}
	c.mu.Unlock()
	switch {
	case err != nil:
		return err
	case closed:
		_ = l.dealer.Close() // not under the mutex, which its monitor locks
		return ErrClosed
	}
	return nil
}

// notify wakes all calls of acquire that wait. mu must be held.
func (c *Client) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}
