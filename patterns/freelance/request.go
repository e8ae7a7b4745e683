package freelance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"clustermap/sockets"
)

// Reply is a server's answer to a request.
type Reply struct {
	Body   [][]byte // at least one frame; the caller's
	Server string   // endpoint of the server that answered
}

// call is a request in progress.
type call struct {
	number  uint64 // key in Client.pending
	control control
	message [][]byte      // control frame and body
	wake    chan struct{} // what plan decided may be wrong now; capacity 1
	timer   *time.Timer

	// The reply or the server's error, for the caller when replied has a token;
	// that is sent, by who took the call off the pending ones, once.
	reply   Reply
	err     error
	replied chan struct{}

	// Guarded by Client.mu while the call is pending.
	deadline  time.Time
	first     int           // of the links: where to begin
	tries     []try         // in order
	current   int           // index of the try whose answer is awaited; none: the call waits for a server
	share     time.Duration // for how long the server of current may be silent
	overslept bool          // the call has looked too late once, and waited a little longer
}

// none is the index of no try.
const none = -1

// try is the sending of a request over a connection.
type try struct {
	link    *link
	peer    *sockets.Peer
	sent    time.Time
	refused bool // the server has no room
	unsent  bool // our queue had no room
}

// calls are kept for reuse, with channels and timers.
var calls = sync.Pool{New: func() any {
	k := &call{wake: make(chan struct{}, 1), replied: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	k.timer.Stop()
	return k
}}

// release gives a call back. It must not be pending.
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

// rouse has the call's goroutine plan anew. Client.mu must be held, and the call
// pending.
func (k *call) rouse() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// over returns the connection over which the call was sent last and whose answer is
// awaited, or nil.
func (k *call) over() *sockets.Peer {
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

// Request sends a request, of at least one frame, to one of the servers and returns
// the reply. It is Do for callers that do not care which server answers.
func (c *Client) Request(ctx context.Context, body ...[]byte) (reply [][]byte, err error) {
	r, err := c.Do(ctx, body...)
	return r.Body, err
}

// Do sends a request, of at least one frame, to one of the servers and returns the
// first reply. The frames must not change until it returns. The request goes to the
// next server as the package's documentation says, until the context's deadline;
// without one, for ClientOptions.Timeout. Then the error is a *NoReplyError. Others
// are ErrNoBody, ErrTooManyRequests, ErrClosed, sockets.ErrTooLarge, a
// *HandlerError if the server's handler returned an error, ErrBusy if all servers
// refused, and context.Canceled.
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
				now = time.Now() // the next server's share begins
			}
			continue // for how long to wait
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

// enter makes a call pending.
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

// giveUp ends a call without a reply, unless it has one by now. Without an error it
// is that there was none in time.
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

// explain returns why there is no reply. mu must be held.
func (c *Client) explain(k *call) error {
	c.stats.TimedOut++
	e := &NoReplyError{Servers: make([]Attempt, len(c.links))}
	for i, l := range c.links {
		a := Attempt{Server: l.endpoint, State: l.state()}
		if a.State == Connecting {
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

// step is what plan decided.
type step struct {
	link  *link // send the request to it, or
	peer  *sockets.Peer
	ping  bool // a PING
	err   error
	until time.Time // plan again then, if nothing happens before
}

// plan decides what a call does next. It marks a server as silent that has used up
// its share of the time.
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

// stay decides whether a call goes on waiting for the server that it was sent to. A
// server is silent if nothing came from it for its share of the time, and it had a
// third of that to answer a PING. mu must be held.
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
		c.ask(l, now)
		s = step{link: l, peer: l.peer, ping: true}
	}
	silence := later(since.Add(k.share), l.asked.Add(pause))
	if late := now.Sub(silence); late >= 0 {
		if late < pause || k.overslept {
			c.silence(l)
			return step{}, false
		}
		// It was this program that did not run: what the server sent meanwhile may
		// wait to be read.
		k.overslept = true
		silence = now.Add(pause)
	}
	s.until = earlier(until, silence)
	return s, true
}

// ask notes that a server is sent a PING. mu must be held.
func (c *Client) ask(l *link, now time.Time) {
	l.pinged = now
	if l.asked.IsZero() {
		l.asked = now
	}
	c.stats.Pings++
}

// silence notes that a server is silent. mu must be held.
func (c *Client) silence(l *link) {
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

// choose returns the server that a call goes to next, nil if there is none, and how
// many others it has not been sent to. Servers that it has been sent to over a
// connection that ended come last. mu must be held.
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

// allRefused reports whether all servers have refused the call. mu must be held.
func (c *Client) allRefused(k *call) bool {
	for _, l := range c.links {
		if i := k.tried(l.peer); l.peer == nil || i == none || !k.tries[i].refused {
			return false
		}
	}
	return len(c.links) > 0
}

// send sends the request as plan has decided, and reports whether it waited for room in
// the queue. It returns an error only if the request can be sent to no server.
func (c *Client) send(ctx context.Context, k *call, s step) (waited bool, err error) {
	err = s.link.router.SendTo(over, s.peer, k.message...)
	if errors.Is(err, context.Canceled) {
		waited = true
		// The queue is full, in bytes. The server has its share of the time to take
		// some of it.
		wait, cancel := context.WithDeadline(ctx, s.until)
		defer cancel()
		err = s.link.router.SendTo(wait, s.peer, k.message...)
	}
	switch {
	case err == nil, errors.Is(err, sockets.ErrTooLarge):
		return waited, err
	case ctx.Err() == context.Canceled: // while it waited: no other server gets it
		return waited, ctx.Err()
	}
	c.mu.Lock()
	k.tries[k.current].unsent = true
	c.mu.Unlock()
	return waited, nil
}
