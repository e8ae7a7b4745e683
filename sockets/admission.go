package sockets

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// admission bounds what strangers can hold of a socket: how many connections it
// has accepted, how many of these are in their handshake, and how many calls of
// an authenticator run.
//
// A handshake that waits for its peer has stalled, for as long as the peer takes
// for its next step: the greeting, or one command. A peer that sends single bytes
// gains nothing by that. When there are too many handshakes, a newcomer takes the
// place of the one that has stalled longest, if that is longer than the grace:
// so silent peers lock nobody out, and a peer that goes on is never evicted. Nor
// is one that waits for the authenticator, or for the application. While there is none to evict, the
// listener waits, and the system's backlog is the queue.
type admission struct {
	maxConnections, maxHandshakes int
	grace                         time.Duration // handshakeGrace, but in tests
	judges                        chan struct{} // a token for each call of an authenticator that runs

	mu          sync.Mutex
	connections int       // accepted, and not ended
	handshakes  int       // of these, in their handshake
	stalled     list.List // of *conn: the handshakes that wait for their peer, the longest first
	room        gate      // listeners wait here
}

// handshakeGrace is how long a peer may take for a step of its handshake before a
// newcomer may take its place: a round trip around the world, with a margin. Many
// hostile connections hold up a newcomer for about this time for each
// MaxHandshakes of them that are before it in the backlog.
const handshakeGrace = 250 * time.Millisecond

func (a *admission) init(o *Options) {
	a.maxConnections, a.maxHandshakes = o.MaxConnections, o.MaxHandshakes
	a.grace = handshakeGrace
	a.judges = make(chan struct{}, o.MaxHandshakes)
	a.room = newGate()
}

// enter counts a new connection, whose handshake begins. While there are too many
// handshakes, and none to evict, it waits. It returns ErrClosed when closed is
// closed first, and ErrTooManyConnections if there are MaxConnections.
func (a *admission) enter(c *conn, closed <-chan struct{}) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		full := a.connections >= a.maxConnections
		if !full && a.handshakes < a.maxHandshakes {
			break
		}
		wait := a.evict()
		if wait == 0 {
			continue
		}
		if full {
			return ErrTooManyConnections
		}
		l := limit{patience: wait}
		if err := a.room.waitWithin(context.Background(), &a.mu, closed, &l); err == ErrClosed {
			return err
		}
	}
	c.accepted, c.shaking = true, true
	a.connections++
	a.handshakes++
	a.stall(c)
	a.wake()
	return nil
}

// evict ends the handshake that has stalled longest, if that is longer than the
// grace, and returns 0. Else it returns when to look again. mu must be held.
func (a *admission) evict() (wait time.Duration) {
	first := a.stalled.Front()
	if first == nil {
		return a.grace
	}
	c := first.Value.(*conn)
	if wait = a.grace - time.Since(c.since); wait > 0 {
		return wait
	}
	c.close(ErrHandshakeTimeout)
	a.forget(c)
	return 0
}

// wake tells listeners that there may be room, if so. mu must be held.
func (a *admission) wake() {
	if a.handshakes < a.maxHandshakes {
		a.room.wake()
	}
}

// stall says that from now on the handshake of c waits for the peer's next step.
// mu must be held.
func (a *admission) stall(c *conn) {
	if !c.shaking {
		return // not accepted, or evicted
	}
	if c.stalled != nil {
		a.stalled.Remove(c.stalled)
	}
	c.since = time.Now()
	c.stalled = a.stalled.PushBack(c)
}

// advanced says that the peer has made a step of its handshake.
func (a *admission) advanced(c *conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stall(c)
}

// judging says that the peer of c waits for us: for an authenticator, until
// advanced, or until established for the application to make room.
func (a *admission) judging(c *conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.stalled != nil {
		a.stalled.Remove(c.stalled)
		c.stalled = nil
	}
}

// established says that the handshake of c has succeeded.
func (a *admission) established(c *conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.shaking {
		a.settle(c)
	}
}

// leave says that c has ended.
func (a *admission) leave(c *conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget(c)
}

// forget counts c no more. mu must be held.
func (a *admission) forget(c *conn) {
	if c.shaking {
		a.settle(c)
	}
	if c.accepted {
		c.accepted = false
		a.connections--
	}
}

// settle ends the handshake of c. mu must be held.
func (a *admission) settle(c *conn) {
	if c.stalled != nil {
		a.stalled.Remove(c.stalled)
		c.stalled = nil
	}
	c.shaking = false
	a.handshakes--
	a.wake()
}
