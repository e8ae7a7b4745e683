package chp

import (
	"errors"
	"math/rand/v2"
	"time"
)

// run keeps a session going until the client is closed: with the same server
// after a broken connection or a gap, since that server lives or will soon be
// back, with the next one after silence or a failed attempt.
func (c *Client) run() {
	defer close(c.ended)
	index, failures := 0, 0
	for {
		server := c.servers[index]
		c.enter(StateInitial, server.name)
		active, err := c.runSession(index)
		if c.ctx.Err() != nil {
			return
		}
		if active >= settled {
			failures = 0
		}
		next := c.successor(index, active > 0, err)
		c.log.Warn("session ended", "server", server.name, "error", err, "next", c.servers[next].name)
		if c.opts.OnFailure != nil {
			c.opts.OnFailure(server.name, err)
		}
		index = next
		failures++
		if !c.pause(c.backOff(failures)) {
			return
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
	if active && errors.Is(err, errDisconnected) {
		return index
	}
	return (index + 1) % len(c.servers)
}

// Waits between sessions.
const (
	backOffFirst = 50 * time.Millisecond
	backOffMost  = time.Second
)

// backOff returns how long to wait before the next session: not at all for one
// round of the servers, then longer and longer. A random part keeps clients
// that lost a server together from coming back together.
func (c *Client) backOff(failures int) time.Duration {
	rounds := failures / len(c.servers)
	if failures <= 1 || rounds == 0 {
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
