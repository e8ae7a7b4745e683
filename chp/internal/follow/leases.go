package follow

import (
	"context"
	"sync"
	"time"

	"clustermap/chp/internal/submit"
	"clustermap/chp/internal/wire"
	"clustermap/internal/hooks"
	"clustermap/internal/kvmsg"
	"clustermap/internal/wake"
	"clustermap/zmtp"
)

// ErrNoLeases is chp.ErrNoLeases.
var ErrNoLeases = submit.ErrNoLeases

// leaseAsks are the questions about leases that are not answered yet. A call asks again, with another number,
// when a session ends, or there is no answer for a while.
type leaseAsks struct {
	mu     sync.Mutex
	number uint64 // of the last question
	open   map[uint64]*leaseAsk
	wire   []byte // scratch
}

// leaseAsk is a question that was sent.
type leaseAsk struct {
	session *session
	leases  int
	left    []time.Duration
	done    chan struct{}
}

// Leases asks the server that the client follows about leases, at most wire.MaxLeases, and sets left to what it
// answers. sent is when the question was sent that it has answered: what it says holds at that
// time or later. Leases waits until the client is ACTIVE, and goes on at the next server if the present
// one is lost.
func (f *Follower) Leases(ctx context.Context, kind wire.LeaseKind, ids []kvmsg.LeaseID, left []time.Duration) (sent time.Time, err error) {
	for {
		if err := f.KnowsLeases(ctx); err != nil {
			return sent, err
		}
		s := f.current.Load()
		if s == nil {
			continue
		}
		number, a := f.leases.begin(s, len(ids))
		sent = time.Now()
		f.leases.send(s, number, kind, ids)
		again := time.NewTimer(leaseAgain)
		select {
		case <-a.done:
		case <-s.over:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
		switch answered := f.leases.end(number, a); {
		case answered:
			copy(left, a.left)
			return sent, nil
		case ctx.Err() != nil:
			return sent, ctx.Err()
		}
	}
}

// KnowsLeases waits until the client is ACTIVE, and returns ErrNoLeases if its server knows no leases.
func (f *Follower) KnowsLeases(ctx context.Context) error {
	for {
		if err := f.WaitActive(ctx); err != nil {
			return err
		}
		if s := f.current.Load(); s == nil { // the session has just ended, or is about to be ACTIVE
			if !wake.Pause(ctx, time.Millisecond) {
				return ctx.Err()
			}
		} else if !s.leases {
			return ErrNoLeases
		} else {
			return nil
		}
	}
}

func (q *leaseAsks) begin(s *session, leases int) (number uint64, a *leaseAsk) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open == nil {
		q.open = map[uint64]*leaseAsk{}
	}
	q.number++
	a = &leaseAsk{session: s, leases: leases, done: make(chan struct{})}
	q.open[q.number] = a
	return q.number, a
}

func (q *leaseAsks) send(s *session, number uint64, kind wire.LeaseKind, ids []kvmsg.LeaseID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wire = wire.AppendLeaseQuestion(q.wire[:0], number, kind, ids)
	// Without room, or a connection, there is no answer, and the call asks again.
	_ = hooks.SendWire(wake.Ended, s.dealer, q.wire, 1, nil)
}

// end reports whether a question was answered, and forgets it otherwise.
func (q *leaseAsks) end(number uint64, a *leaseAsk) (answered bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, waits := q.open[number]
	delete(q.open, number)
	return !waits
}

// answer handles a message of a session if it is an answer, and reports whether it is.
func (q *leaseAsks) answer(from *session, m zmtp.WireMessage) bool {
	if !wire.IsLeases(m) {
		return false
	}
	number, left, ok := wire.ParseLeases(m, nil)
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.open[number]
	if !ok || a == nil || a.session != from || len(left) != a.leases {
		return true
	}
	delete(q.open, number)
	a.left = left
	close(a.done)
	return true
}
