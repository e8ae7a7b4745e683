package snapshot

import (
	"context"
	"errors"
	"time"

	"clustermap/internal/buf"
	"clustermap/internal/hooks"
	"clustermap/internal/wake"
	"clustermap/sockets"
)

// joiner is a client that is being sent snapshots: its requests in order, and how many
// bytes of the answers its connection holds.
//
// It is sent the next parcel when that fits in its window, which bounds the bytes in
// flight. The window grows while the client reads fast and shrinks while it is slow. So
// a slow client makes progress in small steps, and a client that stops reading holds
// little memory.
type joiner struct {
	snapshots *Server
	peer      *sockets.Peer
	wake      chan struct{} // a request came, or a parcel was written
	evicted   chan struct{} // closed by trim

	// Guarded by Server.mu.
	answers []*answer // not yet sent; the first one is being sent
	gone    bool      // nothing more is sent
	trimmed bool      // evicted is closed
	flying  int       // bytes lent to the connection
	window  int       // bound on flying
	lent    bool      // the last parcel was of the log and needed no memory
	moved   time.Time // when a parcel was last written, or the first of several was lent
}

// errStalled is the reason for disconnecting a client that does not read its snapshot.
var errStalled = errors.New("chp: the client does not read its snapshot")

func newJoiner(n *Server, peer *sockets.Peer) *joiner {
	return &joiner{snapshots: n, peer: peer, wake: make(chan struct{}, 1), evicted: make(chan struct{}), window: firstWindow}
}

// since returns how many of the answers are what came after a sequence. Server.mu must be held.
func (j *joiner) since() (n int) {
	for _, a := range j.answers {
		if a.want.Since {
			n++
		}
	}
	return n
}

// run sends the answers in the order of the requests, and returns when all are written.
func (j *joiner) run(ctx context.Context) {
	n := j.snapshots
	for {
		n.mu.Lock()
		if len(j.answers) == 0 && j.flying == 0 {
			j.gone = true
			delete(n.joiners, j.peer)
			n.mu.Unlock()
			return
		}
		var a *answer
		if len(j.answers) > 0 {
			a = j.answers[0]
		}
		n.mu.Unlock()
		var err error
		if a == nil {
			err = j.await(ctx, j.wake)
		} else if err = j.await(ctx, a.ready); err == nil {
			if err = j.sendProgress(ctx, a); err == nil {
				err = j.send(ctx, a.chain)
			}
			if err == nil {
				n.count(a)
				n.mu.Lock()
				n.remove(a)
				j.answers = j.answers[1:]
				n.mu.Unlock()
			}
		}
		if err != nil {
			j.fail(ctx, err)
			return
		}
	}
}

// fail drops the client's answers, and disconnects the client if it has stalled.
func (j *joiner) fail(ctx context.Context, err error) {
	n := j.snapshots
	n.mu.Lock()
	j.gone = true
	if n.joiners[j.peer] == j {
		delete(n.joiners, j.peer)
	}
	for _, a := range j.answers {
		n.remove(a)
	}
	j.answers = nil
	n.mu.Unlock()
	if ctx.Err() == nil && errors.Is(err, errStalled) {
		j.peer.Disconnect(sockets.ErrSlowPeer)
	}
}

// sendProgress sends the report of the client's progress that goes before an answer, if there is one.
func (j *joiner) sendProgress(ctx context.Context, a *answer) error {
	if a.progress == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, j.snapshots.opts.Timeout)
	defer cancel()
	return hooks.SendWireTo(limited, j.snapshots.opts.Router, j.peer, a.progress, 1, nil)
}

// send sends a chain from its beginning to its end.
func (j *joiner) send(ctx context.Context, c *chain) error {
	n := j.snapshots
	for at := place(0); at != atEnd; {
		if err := j.awaitRoom(ctx); err != nil {
			return err
		}
		p, err := c.acquire(ctx, j, at)
		if err != nil {
			return err
		}
		at = p.next
		if err := j.lend(ctx, p); err != nil {
			return err
		}
		n.mu.Lock()
		c.cut.moved = time.Now()
		n.mu.Unlock()
	}
	return nil
}

// lend lends a parcel to the connection. It takes over the caller's use of the parcel.
func (j *joiner) lend(ctx context.Context, p *parcel) error {
	n := j.snapshots
	l := &loan{joiner: j, parcel: p, size: len(p.wire), begun: time.Now()}
	l.refs.Store(1)
	n.mu.Lock()
	if j.flying == 0 {
		j.moved = l.begun
	}
	j.flying += l.size
	j.lent = p.lent != nil
	n.mu.Unlock()
	defer l.Release()
	// The socket waits only if it has copied many small parcels.
	limited, cancel := context.WithTimeout(ctx, n.opts.Timeout)
	defer cancel()
	err := hooks.SendWireTo(limited, n.opts.Router, j.peer, p.wire, p.messages, l)
	if err == nil {
		n.Counted.SentBytes.Add(int64(l.size))
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return errStalled
	}
	return err
}

// landed ends a loan.
func (j *joiner) landed(l *loan) {
	n := j.snapshots
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	j.flying -= l.size
	j.moved = now
	switch took := now.Sub(l.begun); {
	case took < windowFast:
		j.window = min(2*j.window, maxWindow)
	case took > windowSlow:
		j.window = max(j.window/2, minWindow)
	}
	n.free(l.parcel)
	wake.Signal(j.wake)
}

// awaitRoom waits until the window has room for a parcel, or the client's share of the
// memory if that is less and parcels need it. There always is room while nothing is in
// flight.
func (j *joiner) awaitRoom(ctx context.Context) error {
	n := j.snapshots
	for {
		n.mu.Lock()
		limit := j.window
		if !j.lent {
			limit = j.limit()
		}
		room := j.flying == 0 || j.flying+parcelSize(limit) <= limit
		n.mu.Unlock()
		if room {
			return nil
		}
		if err := j.await(ctx, j.wake); err != nil {
			return err
		}
	}
}

// limit returns the number of bytes that may be in flight: the window, or the client's
// share of the free memory if that is less. All clients together get half of the free
// memory, so that some remains for the next one. A client with nothing in flight may
// always be sent a small parcel. Server.mu must be held.
func (j *joiner) limit() int {
	b := &j.snapshots.small
	free := b.limit - (b.used - b.idle)
	return min(j.window, free/(2*(len(j.snapshots.joiners)+1)))
}

// parcelSize returns the size of parcels for a client with the given limit.
func parcelSize(limit int) int {
	switch size := limit / 2; {
	case size >= buf.Large:
		return buf.Large
	case size >= 32<<10:
		return 32 << 10
	}
	return buf.Small
}

// await waits for a channel. It returns an error if the context ends, if trim drops the
// client's cut, or if the client has stalled: it has bytes to read and has read none
// for Options.Timeout. That bounds every wait, including one for memory that other
// clients hold, so two clients cannot wait for each other forever.
func (j *joiner) await(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	default:
	}
	timeout := j.snapshots.opts.Timeout
	timer := time.NewTimer(j.patience(timeout))
	defer timer.Stop()
	for {
		select {
		case <-c:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-j.evicted:
			return sockets.ErrSlowPeer
		case <-timer.C:
			left := j.patience(timeout)
			if left <= 0 {
				return errStalled
			}
			timer.Reset(left)
		}
	}
}

// patience returns how much longer the client may read nothing.
func (j *joiner) patience(timeout time.Duration) time.Duration {
	j.snapshots.mu.Lock()
	defer j.snapshots.mu.Unlock()
	if j.flying == 0 {
		return timeout
	}
	return timeout - time.Since(j.moved)
}
