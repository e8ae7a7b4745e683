package chp

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// run runs one session after another until the client is closed. It stays with a server
// after a broken connection, a gap, or too many deletions during a join, because that
// server is alive or will soon be back. It changes to the next server after silence or
// a failed attempt.
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
				c.complaints.Forget(s.server.name)
			}
			if active > 0 {
				standby.reset()
			}
			passive := errors.Is(err, ErrStandby)
			standby.ask(1, passive)
			if !passive {
				failures++
			}
			relapse = relapses.ended(active, s.arrived, err)
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

// failed reports why a session, or an attempt to connect, ended. next is the index of
// the server that is tried next.
func (c *Client) failed(s *session, err error, next int) {
	c.complain(s, err, next)
	overtaken := errors.Is(err, errOvertaken)
	if s.host != nil && (s.active.IsZero() && !overtaken || errors.Is(err, ErrSilent)) {
		s.host.Failed() // the next attempt begins with another address of the name
	}
	c.status.fail(s.index, err, s.host != nil && s.host.Untried())
	var unfit *CollectorError
	if errors.As(err, &unfit) {
		c.writer.Fail(err)
	}
	if c.opts.OnFailure != nil && c.ctx.Err() == nil {
		c.opts.OnFailure(s.server.name, err)
	}
}

// While attempts to connect run, an attempt at the next server begins each time
// SyncTimeout/shares has passed.
//
// When all servers have been tried, further attempts begin after a quarter of
// SyncTimeout, then a half, then all of it. An attempt can be stuck on a dead
// connection although the server is reachable. But most likely the server is busy
// because all of its clients come at once, and each abandoned attempt adds work.
const (
	shares     = 16
	shareAgain = 4 // SyncTimeout/shareAgain before the first further attempt
	doublings  = 2
)

// maxAttempts bounds the attempts to connect that run at the same time.
const maxAttempts = 4

// reach returns a session that has connected, to the server with index first or to a
// later one if that fails or does not answer soon. It returns nil when every server was
// tried and all attempts have failed, or when the client is closed. failed is the
// number of failed attempts.
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

// attempts are sessions that connect at the same time.
type attempts struct {
	client  *Client
	next    int // index of the server that is tried next
	started int
	running []*session // oldest first
	results chan *session
	won     *session
}

func (a *attempts) start() {
	c := a.client
	others := 0
	for _, running := range a.running {
		if running.index == a.next {
			others++
		}
	}
	s := c.newSession(a.next, others)
	if a.started < len(c.servers) {
		c.setState(StateInitial, s.server.name)
	}
	a.started++
	c.attempts.Add(1)
	c.status.began(s.index)
	a.next = (a.next + 1) % len(c.servers)
	a.running = append(a.running, s)
	go func() {
		s.failure = s.begin()
		a.results <- s
	}()
}

// gap returns the time from the start of one attempt to the start of the next.
func (a *attempts) gap() time.Duration {
	wait := a.client.opts.SyncTimeout / shares
	if again := a.started - len(a.client.servers); again >= 0 {
		wait = a.client.opts.SyncTimeout / shareAgain << min(again, doublings)
	}
	return max(wait, time.Millisecond)
}

// giveUp ends an attempt to make room for another one. It chooses one whose server has
// not answered, and not the oldest, whose server may be far away.
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

// end ends the attempts that are still running.
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

// successor returns the index of the server to try after a session with server index
// has ended with err. active reports whether the session was ACTIVE.
func (c *Client) successor(index int, active bool, err error) int {
	var gap *GapError
	if errors.As(err, &gap) {
		c.gaps.Add(1)
		return index
	}
	if active && errors.Is(err, ErrDisconnected) || errors.Is(err, errDeletions) {
		return index
	}
	return (index + 1) % len(c.servers)
}

// Waits between sessions.
const (
	backOffFirst = 50 * time.Millisecond
	backOffMost  = 500 * time.Millisecond
)

// backOff returns the wait before the next session: none for one round of the
// servers, then longer and longer. Part of it is random, so that clients that lost a
// server at the same time do not come back at the same time.
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

// pause waits, and returns false if the client was closed meanwhile.
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
