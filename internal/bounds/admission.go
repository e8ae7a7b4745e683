package bounds

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"clustermap/internal/link"
	"clustermap/internal/list"
	"clustermap/internal/queue"
)

// Guest is an accepted connection. The mutex of its Admission guards the unexported fields.
type Guest struct {
	Conn       Conn
	Descriptor int // number; -1 if unknown

	accepted bool                // counted in Admission.connections
	shaking  bool                // counted in Admission.handshakes
	stalled  list.Element[Guest] // in Admission.stalled
	extra    list.Element[Guest] // in Admission.trials or Admission.operators
	since    time.Time           // when it was listed in stalled or operators

	announced int // bytes that count in Admission.announced
}

// Admission limits the resources that peers can occupy: the accepted
// connections, those of them that are in their handshake, and the concurrent
// calls of an authenticator.
//
// A handshake is stalled while it waits for the peer's next step, which is the
// greeting or one complete command: single bytes do not count as a step. When
// there are too many handshakes, a new connection replaces the one that has
// been stalled longest, if that is longer than the grace. So silent peers
// cannot keep others out. A peer that completes its steps in time is never
// evicted, nor is one that waits for the authenticator or the application.
// While no handshake can be evicted, the listener waits, and new connections
// stay in the system's backlog.
//
// Both limits follow the number of descriptors that the process may have, so that
// the sockets of a process together leave some to its files; see full.
type Admission struct {
	tuning *Tuning
	beyond // the places for operators

	mu sync.Mutex

	maxConnections, maxHandshakes int

	connections int              // accepted, and not ended
	announced   int              // bytes of what they announced, beyond freeAnnounced each
	handshakes  int              // of these, in their handshake
	stalled     list.List[Guest] // the handshakes that wait for their peer, the longest wait first
	room        queue.Gate       // where listeners wait
	calls       int              // of an authenticator, in progress
	callers     queue.Gate       // where further calls wait
}

func (a *Admission) Init(l Limits, t *Tuning) {
	a.tuning = t
	a.Set(l)
}

// Limits are the options of an Admission.
type Limits struct {
	MaxConnections, MaxHandshakes int
	Operators                     bool // there are places for operators
	Keys                          bool // a peer of another machine can prove its key
}

// Set changes the limits.
func (a *Admission) Set(l Limits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.maxConnections, a.maxHandshakes = l.MaxConnections, min(l.MaxHandshakes, max(link.Descriptors()/handshakeShare, 1))
	a.open, a.keys = l.Operators, l.Keys
	a.room.WakeAll()
	a.callers.WakeAll()
}

// Enter counts a new connection, whose handshake begins. It waits while there are
// too many handshakes and none of them can be evicted. It returns queue.ErrClosed if the
// channel closed is closed meanwhile. If there are MaxConnections and none of them
// can be evicted, or if descriptors are short, it returns ErrTooManyConnections,
// unless the connection may be an operator's.
func (a *Admission) Enter(c *Guest, closed <-chan struct{}) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		full := a.full(c)
		if full == nil && a.handshakes < a.maxHandshakes {
			a.connections++
			break
		}
		wait := a.evict()
		if wait == 0 && full != errDescriptors { // a later connection gets that descriptor
			continue
		}
		if full != nil {
			if a.try(c) {
				break
			}
			return full
		}
		l := queue.Limit{Patience: wait}
		if err := a.room.Wait(context.Background(), &a.mu, closed, &l); err == queue.ErrClosed {
			return err
		}
	}
	c.accepted, c.shaking = true, true
	a.handshakes++
	a.stall(c)
	a.wake()
	return nil
}

// errDescriptors is the error for a connection that is closed for the reserve.
var errDescriptors = fmt.Errorf("%w: %w", ErrTooManyConnections, syscall.EMFILE)

// reserveBegins returns the number of the first descriptor of the reserve, and of its
// upper half. The number of a new connection's descriptor tells how many are in use,
// whatever for: the system gives it the lowest one that is free.
func reserveBegins() (lower, upper int) {
	limit := link.Descriptors()
	reserve := min(maxReserve, limit/4)
	return limit - reserve, limit - reserve/2
}

// full returns an error if there is no room for c. mu must be held.
func (a *Admission) full(c *Guest) error {
	if a.connections >= a.maxConnections {
		return ErrTooManyConnections
	}
	lower, upper := reserveBegins()
	if c.Descriptor >= upper || c.Descriptor >= lower && a.connections >= FewConnections {
		return errDescriptors
	}
	return nil
}

// evict ends the handshake that has been stalled longest, if that is longer
// than the grace, and returns 0. Otherwise it returns the time after which to
// try again. mu must be held.
func (a *Admission) evict() (wait time.Duration) {
	c := a.stalled.Front()
	if c == nil {
		return a.tuning.HandshakeGrace
	}
	if wait = a.tuning.HandshakeGrace - time.Since(c.since); wait > 0 {
		return wait
	}
	c.Conn.Close(ErrHandshakeTimeout)
	a.forget(c)
	return 0
}

// BeginCall waits until an authenticator may be called, and counts the call. It
// returns false if done is closed first.
func (a *Admission) BeginCall(done <-chan struct{}) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.calls >= a.maxHandshakes {
		if a.callers.Sleep(&a.mu, nil, done, nil) != nil {
			return false
		}
	}
	a.calls++
	a.wakeCaller()
	return true
}

// EndCall records the end of a call.
func (a *Admission) EndCall() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls--
	a.wakeCaller()
}

// wakeCaller wakes one that waits for its call if it may begin. mu must be held.
func (a *Admission) wakeCaller() {
	if a.calls < a.maxHandshakes {
		a.callers.Wake()
	}
}

// wake wakes the listeners if another handshake may begin. mu must be held.
func (a *Admission) wake() {
	if a.handshakes < a.maxHandshakes {
		a.room.Wake()
	}
}

// stall records that the handshake of c waits for the peer's next step from now
// on. mu must be held.
func (a *Admission) stall(c *Guest) {
	if !c.shaking {
		return // not accepted, or evicted
	}
	c.stalled.Remove()
	c.since = time.Now()
	c.stalled.Of = c
	a.stalled.PushBack(&c.stalled)
}

// Advanced records that the peer has made a step of its handshake.
func (a *Admission) Advanced(c *Guest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stall(c)
}

// WaitsForUs records that the peer of c waits for us: for the authenticator, until
// Advanced is called, or for the application to make room, until established is
// called.
func (a *Admission) WaitsForUs(c *Guest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.stalled.Remove()
}

// Established records that the handshake of c has succeeded.
func (a *Admission) Established(c *Guest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.shaking {
		a.settle(c)
	}
}

// errAnnounced is the error for a connection that is closed for maxAnnounced.
var errAnnounced = fmt.Errorf("%w that announce more than %d bytes of properties", ErrTooManyConnections, freeAnnounced)

// Announced counts the bytes that the peer of c has announced and that are kept, until Leave.
// It returns an error that is ErrTooManyConnections if there is no room for them.
func (a *Admission) Announced(c *Guest, bytes int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	over := bytes - freeAnnounced
	switch {
	case over <= 0 || !c.accepted:
		return nil
	case a.announced+over > a.tuning.MaxAnnounced:
		return errAnnounced
	}
	a.announced += over
	c.announced = over
	return nil
}

// Leave records that c has ended.
func (a *Admission) Leave(c *Guest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget(c)
}

// forget stops counting c. mu must be held.
func (a *Admission) forget(c *Guest) {
	if c.shaking {
		a.settle(c)
	}
	if !c.accepted {
		return
	}
	c.accepted = false
	a.announced -= c.announced
	c.announced = 0
	if !a.release(c) {
		a.connections--
	}
}

// settle stops counting the handshake of c. mu must be held.
func (a *Admission) settle(c *Guest) {
	c.stalled.Remove()
	c.shaking = false
	a.handshakes--
	a.wake()
}
