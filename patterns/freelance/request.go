package freelance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"clustermap/internal/wake"
	"clustermap/sockets"
)

// Reply is a server's answer to a request.
type Reply struct {
	Body   [][]byte // at least one frame; owned by the caller
	Server string   // endpoint of the server that answered
}

// call is a request in progress.
type call struct {
	number  uint64 // key in Client.pending
	control control
	message [][]byte      // control frame and body
	wake    chan struct{} // tells Do to call plan again, with Client.mu held and while the call is pending; capacity 1
	timer   *time.Timer

	// The reply or the server's error. The goroutine that removes the call from
	// Client.pending because of a reply sets them and then sends to replied, once;
	// capacity 1.
	reply   Reply
	err     error
	replied chan struct{}

	// Guarded by Client.mu while the call is pending.
	deadline  time.Time
	first     int           // index of the link to start with
	tries     []try         // in order
	current   int           // index of the try that waits for a reply, or none if the call waits for a server
	share     time.Duration // the time that the server of current may be silent
	overslept bool          // the call has noticed the silence too late once, and extended the share
}

// none is the index of no try.
const none = -1

// try is an attempt to send a request over a connection.
type try struct {
	link    *link
	peer    *sockets.Peer
	sent    time.Time
	refused bool // the server had no room
	unsent  bool // the send queue had no room
}

var calls = sync.Pool{New: func() any {
	k := &call{wake: make(chan struct{}, 1), replied: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	k.timer.Stop()
	return k
}}

// release returns a call to the pool. It must not be pending.
func (k *call) release() {
	k.timer.Stop()
	select {
	case <-k.wake:
	default:
	}
	clear(k.message)
	clear(k.tries)
	k.message, k.tries = k.message[:0], k.tries[:0]
	k.reply, k.err = Reply{}, nil
	calls.Put(k)
}

// waitsFor returns the connection over which a reply is expected, or nil.
func (k *call) waitsFor() *sockets.Peer {
	if k.current == none {
		return nil
	}
	return k.tries[k.current].peer
}

// tried returns the index of the try over a connection, or none.
func (k *call) tried(peer *sockets.Peer) int {
	return slices.IndexFunc(k.tries, func(t try) bool { return t.peer == peer })
}

// visited reports whether the call has been sent to a server, over any connection.
func (k *call) visited(l *link) bool {
	return slices.ContainsFunc(k.tries, func(t try) bool { return t.link == l })
}

// Request is like Do, but returns only the body of the reply.
func (c *Client) Request(ctx context.Context, body ...[]byte) (reply [][]byte, err error) {
	r, err := c.Do(ctx, body...)
	return r.Body, err
}

// Do sends a request of one or more frames and returns the first reply. It tries the
// servers one after the other, as the package documentation describes. The frames must
// not change until Do returns.
//
// If there is no reply by the context's deadline, or within ClientOptions.Timeout if it
// has none, Do returns a *NoReplyError. It returns a *HandlerError if a server's
// handler failed, ErrBusy if all servers refused the request, and otherwise ErrNoBody,
// ErrTooManyRequests, ErrClosed, sockets.ErrTooLarge or context.Canceled.
func (c *Client) Do(ctx context.Context, body ...[]byte) (Reply, error) {
	if len(body) == 0 {
		return Reply{}, ErrNoBody
	}
	if ctx.Err() == context.Canceled {
		return Reply{}, ctx.Err()
	}
	now := time.Now()
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = now.Add(c.opts.Timeout)
	}
	k := calls.Get().(*call)
	defer k.release()
	if err := c.enter(k, deadline, body); err != nil {
		return Reply{}, err
	}
	for now.Before(deadline) {
		s := c.plan(k, now)
		switch {
		case s.err != nil:
			return c.giveUp(k, s.err)
		case s.ping:
			s.link.ping(s.peer)
		case s.link != nil:
			waited, err := c.send(ctx, k, s)
			if err != nil {
				return c.giveUp(k, err)
			}
			if waited {
				now = time.Now() // the next server's share starts here
			}
			continue // plan how long to wait
		}
		k.timer.Reset(time.Until(s.until))
		select {
		case <-k.replied:
			return k.reply, k.err
		case <-k.wake:
		case <-k.timer.C:
		case <-ctx.Done():
			if ctx.Err() == context.Canceled {
				return c.giveUp(k, ctx.Err())
			}
			return c.giveUp(k, nil)
		case <-c.done:
			return c.giveUp(k, ErrClosed)
		}
		now = time.Now()
	}
	return c.giveUp(k, nil)
}

// enter numbers a call and adds it to the pending ones.
func (c *Client) enter(k *call, deadline time.Time, body [][]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrClosed
	case len(c.pending) >= c.opts.MaxRequests:
		return ErrTooManyRequests
	}
	c.number++
	c.stats.Requests++
	k.number, k.deadline, k.first, k.current = c.number, deadline, 0, none
	if c.opts.RoundRobin {
		k.first = c.rotation
		c.rotation++
	}
	k.control.set(k.number)
	k.message = append(append(k.message, k.control.frame()), body...)
	c.pending[k.number] = k
	return nil
}

// giveUp ends a call with an error, unless a reply has arrived meanwhile. If err is
// nil, the error is a *NoReplyError.
func (c *Client) giveUp(k *call, err error) (Reply, error) {
	c.mu.Lock()
	_, pending := c.pending[k.number]
	if pending {
		delete(c.pending, k.number)
		if err == nil {
			err = c.explain(k)
		}
	}
	c.mu.Unlock()
	if !pending {
		<-k.replied
		return k.reply, k.err
	}
	return Reply{}, err
}

// explain returns a *NoReplyError. mu must be held.
func (c *Client) explain(k *call) error {
	c.stats.TimedOut++
	e := &NoReplyError{Servers: make([]Attempt, len(c.links))}
	for i, l := range c.links {
		a := Attempt{Server: l.endpoint, State: l.state()}
		if a.State == ServerConnecting {
			a.Err = l.failure()
		}
		for _, t := range k.tries {
			if t.link == l {
				a.Sent = a.Sent || !t.unsent
				if t.refused {
					a.Err = ErrBusy
				}
			}
		}
		e.Servers[i] = a
	}
	return e
}

// step is a decision of plan.
type step struct {
	link  *link // send to it, if not nil
	peer  *sockets.Peer
	ping  bool      // send a PING, not the request
	err   error     // end the call
	until time.Time // wait until then at most
}

// plan decides the next step of a call. It marks a server as silent if nothing arrived
// during its share of the time.
func (c *Client) plan(k *call, now time.Time) step {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.current != none {
		if s, stay := c.stay(k, now); stay {
			return s
		}
		k.current = none
	}
	l, others := c.choose(k)
	if l == nil {
		if c.allRefused(k) {
			return step{err: ErrBusy}
		}
		return step{until: k.deadline}
	}
	if until := c.preferred(k, l); now.Before(until) {
		return step{until: earlier(until, k.deadline)}
	}
	if len(k.tries) > 0 {
		c.stats.Resent++
	}
	k.current, k.overslept = len(k.tries), false
	k.tries = append(k.tries, try{link: l, peer: l.peer, sent: now})
	k.share = k.deadline.Sub(now)
	if others > 0 {
		k.share = min(k.share/time.Duration(others+1), c.opts.ServerTTL)
	}
	return step{link: l, peer: l.peer, until: now.Add(k.share)}
}

// stay decides whether a call continues to wait for its current server. The server is
// silent if nothing arrived during its share of the time, and a third of that passed
// since a PING. mu must be held.
func (c *Client) stay(k *call, now time.Time) (s step, stay bool) {
	t := &k.tries[k.current]
	l := t.link
	if l.peer != t.peer || l.silent || t.refused || t.unsent {
		return step{}, false
	}
	until := k.deadline
	if c.opts.Hedge > 0 {
		hedge := t.sent.Add(c.opts.Hedge)
		if now.Before(hedge) {
			until = earlier(until, hedge)
		} else if next, _ := c.choose(k); next != nil {
			return step{}, false
		}
	}
	pause := k.share / 3
	since := later(t.sent, l.heard)
	if l.asked.IsZero() {
		if ask := since.Add(pause); now.Before(ask) {
			return step{until: earlier(until, ask)}, true
		}
		c.pinging(l, now)
		s = step{link: l, peer: l.peer, ping: true}
	}
	silence := later(since.Add(k.share), l.asked.Add(pause))
	if late := now.Sub(silence); late >= 0 {
		if late < pause || k.overslept {
			c.markSilent(l)
			return step{}, false
		}
		// This process did not run. Messages of the server may still wait to be read.
		k.overslept = true
		silence = now.Add(pause)
	}
	s.until = earlier(until, silence)
	return s, true
}

// pinging records that a PING is sent to a server. mu must be held.
func (c *Client) pinging(l *link, now time.Time) {
	l.pinged = now
	if l.asked.IsZero() {
		l.asked = now
	}
	c.stats.Pings++
}

// mu must be held.
func (c *Client) markSilent(l *link) {
	l.silent = true
	c.stats.Silences++
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// choose returns the next server for a call, or nil, and the number of other servers to
// which it was not sent. Servers to which it was sent over a connection that has ended
// come last. mu must be held.
func (c *Client) choose(k *call) (next *link, others int) {
	var again *link
	n := len(c.links)
	for i := range n {
		l := c.links[(k.first+i)%n]
		visited := k.visited(l)
		usable := l.peer != nil && !l.silent
		switch {
		case usable && !visited && next == nil:
			next = l
		case !visited:
			others++
		case usable && again == nil && k.tried(l.peer) == none:
			again = l
		}
	}
	if next == nil {
		next = again
	}
	return next, others
}

// preferred returns until when a call that was not sent waits for the first connections to
// the servers before l in its order. mu must be held.
func (c *Client) preferred(k *call, l *link) (until time.Time) {
	for i := range c.links {
		before := c.links[(k.first+i)%len(c.links)]
		if before == l || len(k.tries) > 0 {
			break
		}
		until = later(until, before.fresh)
	}
	return until
}

// allRefused reports whether all servers have refused the call. mu must be held.
func (c *Client) allRefused(k *call) bool {
	for _, l := range c.links {
		if i := k.tried(l.peer); l.peer == nil || i == none || !k.tries[i].refused {
			return false
		}
	}
	return len(c.links) > 0
}

// send sends the request, and reports whether it waited for room in the queue. It
// returns an error only if the request must not go to another server.
func (c *Client) send(ctx context.Context, k *call, s step) (waited bool, err error) {
	err = s.link.router.SendTo(wake.Ended, s.peer, k.message...)
	if errors.Is(err, context.Canceled) {
		waited = true
		// The queue is full. Wait for room during the server's share of the time.
		wait, cancel := context.WithDeadline(ctx, s.until)
		defer cancel()
		err = s.link.router.SendTo(wait, s.peer, k.message...)
	}
	switch {
	case err == nil, errors.Is(err, sockets.ErrTooLarge):
		return waited, err
	case ctx.Err() == context.Canceled: // cancelled while it waited
		return waited, ctx.Err()
	}
	c.mu.Lock()
	k.tries[k.current].unsent = true
	c.mu.Unlock()
	return waited, nil
}
