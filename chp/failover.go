package chp

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// run keeps a session going until the client is closed: with the same server
// after a broken connection, a gap, or too many deletions during a join, since that
// server lives or will soon be back; with the next one after silence or a failed
// attempt.
func (c *Client) run() {
	defer close(c.ended)
	index, failures := 0, 0
	var relapses relapses
	var standby standby
	for {
		var relapse time.Duration
		s, failed := c.reach(index)
		failures += failed
		standby.ask(failed, false)
		if s != nil {
			active, err := s.follow()
			if c.ctx.Err() != nil {
				return
			}
			c.unlinked(err)
			if active >= settled {
				failures = 0
				clear(c.complaints[s.index])
			}
			if active > 0 {
				standby.reset()
			}
			passive := errors.Is(err, ErrStandby)
			standby.ask(1, passive)
			if !passive {
				failures++
			}
			relapse = relapses.ended(active, s.arrived)
			index = c.successor(s.index, active > 0, err)
			c.failed(s, err, index)
		}
		wait := c.backOff(failures)
		if w, ok := standby.pause(len(c.servers)); ok {
			wait = w
		}
		if !c.pause(max(wait, relapse)) {
			return
		}
	}
}

// failed reports why a session or an attempt at one ended. The server with index
// next is tried next.
func (c *Client) failed(s *session, err error, next int) {
	c.complain(s, err, next)
	if !errors.Is(err, errOvertaken) {
		c.status.fail(s.server.name, err)
	}
	var unfit *CollectorError
	if errors.As(err, &unfit) {
		c.writer.fail(err)
	}
	if c.opts.OnFailure != nil && c.ctx.Err() == nil {
		c.opts.OnFailure(s.server.name, err)
	}
}

// shares sets how soon an attempt at the next server begins beside those that run:
// each time SyncTimeout/shares has passed.
//
// When all servers have been tried, another attempt at one of them begins after a
// quarter of SyncTimeout, then a half, then all of it: an attempt can be stuck on a dead connection although the
// server is reachable, but most likely the server has much to do, because all of its
// clients come at once, and each attempt that is given up makes it more.
const (
	shares     = 16
	shareAgain = 4 // SyncTimeout/shareAgain before the first such attempt
	doublings  = 2
)

// maxAttempts is how many attempts to connect are made side by side.
const maxAttempts = 4

// reach returns a session that has connected: to the server with the given
// index, or to one after it if that fails or does not answer soon. It returns
// nil when every server was tried and all attempts have failed, or when the
// client is closed, and in any case how many attempts have failed.
func (c *Client) reach(first int) (s *session, failed int) {
	a := attempts{client: c, next: first, results: make(chan *session)}
	defer a.end()
	a.start()
	timer := time.NewTimer(a.gap())
	defer timer.Stop()
	for {
		select {
		case s := <-a.results:
			a.remove(s)
			if s.failure == nil {
				a.won = s
				return s, failed
			}
			failed++
			s.end()
			if c.ctx.Err() != nil {
				return nil, failed
			}
			c.failed(s, s.failure, a.next)
			switch {
			case a.started < len(c.servers):
				a.start()
			case len(a.running) == 0:
				return nil, failed
			}
		case <-timer.C:
			if len(a.running) < maxAttempts {
				a.start()
			} else {
				a.giveUp()
			}
			timer.Reset(a.gap())
		case <-c.ctx.Done():
			return nil, failed
		}
	}
}

// attempts are sessions that connect side by side.
type attempts struct {
	client  *Client
	next    int // index of the server that is tried next
	started int
	running []*session // oldest first
	results chan *session
	won     *session
}

// start begins an attempt at the next server.
func (a *attempts) start() {
	c := a.client
	s := c.newSession(a.next)
	if a.started < len(c.servers) {
		c.setState(StateInitial, s.server.name)
	}
	a.started++
	c.attempts.Add(1)
	a.next = (a.next + 1) % len(c.servers)
	a.running = append(a.running, s)
	go func() {
		s.failure = s.begin()
		a.results <- s
	}()
}

// gap returns how long after one attempt the next one begins.
func (a *attempts) gap() time.Duration {
	wait := a.client.opts.SyncTimeout / shares
	if again := a.started - len(a.client.servers); again >= 0 {
		wait = a.client.opts.SyncTimeout / shareAgain << min(again, doublings)
	}
	return max(wait, time.Millisecond)
}

// giveUp ends an attempt to make room for another one: one that has heard nothing of
// its server, and not the oldest, whose server may be far away.
func (a *attempts) giveUp() {
	for _, s := range a.running[1:] {
		if !s.answered.Load() {
			s.fail(ErrSilent)
			return
		}
	}
}

func (a *attempts) remove(s *session) {
	a.running = slices.DeleteFunc(a.running, func(other *session) bool { return other == s })
}

// end gives up the attempts that are still running.
func (a *attempts) end() {
	for _, s := range a.running {
		s.fail(errOvertaken)
	}
	for range a.running {
		s := <-a.results
		s.end()
		if a.won != nil && s.index != a.won.index {
			a.client.failed(s, errOvertaken, a.won.index)
		}
	}
}

// successor returns the server to turn to after a session with server index,
// which was active or never got there, ended with err.
func (c *Client) successor(index int, active bool, err error) int {
	var gap *GapError
	if errors.As(err, &gap) {
		c.gaps.Add(1)
		return index
	}
	if active && errors.Is(err, errDisconnected) || errors.Is(err, errDeletions) {
		return index
	}
	return (index + 1) % len(c.servers)
}

// Waits between sessions.
const (
	backOffFirst = 50 * time.Millisecond
	backOffMost  = 500 * time.Millisecond
)

// backOff returns how long to wait before the next session: not at all for one
// round of the servers, then longer and longer. A random part keeps clients
// that lost a server together from coming back together.
func (c *Client) backOff(failures int) time.Duration {
	rounds := failures / len(c.servers)
	if failures <= 1 || rounds == 0 || c.opts.restless {
		return 0
	}
	wait := backOffMost
	if rounds < 6 {
		wait = min(backOffMost, backOffFirst<<(rounds-1))
	}
	return wait/2 + rand.N(wait/2)
}

// pause waits, and reports false if the client was closed meanwhile.
func (c *Client) pause(d time.Duration) bool {
	if d <= 0 {
		return c.ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}
