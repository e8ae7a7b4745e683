package follow

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"clustermap/internal/backoff"
	"clustermap/internal/wake"
)

// run runs one session after another until the client is closed. It stays with a server
// after a broken connection, a gap, or too many deletions during a join, because that
// server is alive or will soon be back. It changes to the next server after silence or
// a failed attempt.
func (f *Follower) run() {
	defer close(f.ended)
	index, failures := 0, 0
	var relapses relapses
	var standby standby
	for {
		var relapse time.Duration
		s, failed := f.reach(index)
		failures += failed
		standby.ask(failed, false)
		if s != nil {
			active, err := s.follow()
			if f.ctx.Err() != nil {
				return
			}
			f.links.end(f.ctx, err)
			if errors.Is(err, ErrMapTooLarge) || errors.Is(err, ErrNotCHP) {
				f.past = noMap // what has passed is too much, and the map may not be
			}
			if active >= settled {
				failures = 0
				f.links.causes.Forget(s.server.Name)
			}
			if active > 0 {
				standby.reset()
			}
			passive := errors.Is(err, errStandby)
			standby.ask(1, passive)
			if !passive {
				failures++
			}
			relapse = relapses.ended(s.server.Name, active, s.arrived, err)
			index = f.successor(s.index, active > 0, err)
			f.failed(s, err, index)
		}
		wait := f.backOff(failures)
		if w, ok := standby.pause(len(f.opts.Servers)); ok {
			wait = w
		}
		if !wake.Pause(f.ctx, max(wait, relapse)) || f.ctx.Err() != nil {
			return
		}
	}
}

// failed reports why a session, or an attempt to connect, ended. next is the index of
// the server that is tried next.
func (f *Follower) failed(s *session, err error, next int) {
	f.links.failed(s.server.Name, err, s.joined.Load(), f.opts.Servers[next].Name)
	overtaken := errors.Is(err, ErrOvertaken)
	if s.host != nil && (s.active.IsZero() && !overtaken || errors.Is(err, ErrSilent)) {
		s.host.Failed() // the next attempt begins with another address of the name
	}
	f.status.fail(s.index, err, s.host != nil && s.host.Untried())
	var unfit *CollectorError
	if errors.As(err, &unfit) {
		f.opts.Writer.Fail(err)
	}
	if f.opts.OnFailure != nil && f.ctx.Err() == nil {
		f.opts.OnFailure(s.server.Name, err)
	}
}

// reach returns a session that has connected, to the server with index first or to a
// later one if that fails or does not answer soon. It returns nil when every server was
// tried and all attempts have failed, or when the client is closed. failed is the
// number of failed attempts.
func (f *Follower) reach(first int) (s *session, failed int) {
	a := attempts{owner: f, next: first, results: make(chan *session)}
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
			s.close()
			if f.ctx.Err() != nil {
				return nil, failed
			}
			f.failed(s, s.failure, a.next)
			switch {
			case a.started < len(f.opts.Servers):
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
		case <-f.ctx.Done():
			return nil, failed
		}
	}
}

// attempts are sessions that connect at the same time.
type attempts struct {
	owner   *Follower
	next    int // index of the server that is tried next
	started int
	running []*session // oldest first
	results chan *session
	won     *session
}

func (a *attempts) start() {
	f := a.owner
	var others []netip.Addr
	for _, running := range a.running {
		if running.index == a.next && running.host != nil {
			others = append(others, running.host.At())
		}
	}
	s := f.newSession(a.next, others)
	if a.started < len(f.opts.Servers) {
		f.setState(StateInitial, s.server.Name)
	}
	a.started++
	f.status.began(s.index)
	a.next = (a.next + 1) % len(f.opts.Servers)
	a.running = append(a.running, s)
	go func() {
		s.failure = s.begin()
		a.results <- s
	}()
}

// gap returns the time from the start of one attempt to the start of the next.
func (a *attempts) gap() time.Duration {
	wait := a.owner.opts.SyncTimeout / shares
	if again := a.started - len(a.owner.opts.Servers); again >= 0 {
		wait = a.owner.opts.SyncTimeout / shareAgain << min(again, doublings)
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
		s.fail(ErrOvertaken)
	}
	for range a.running {
		s := <-a.results
		s.close()
		if a.won != nil && s.index != a.won.index {
			a.owner.failed(s, ErrOvertaken, a.won.index)
		}
	}
}

// successor returns the index of the server to try after a session with server index
// has ended with err. active reports whether the session was ACTIVE.
func (f *Follower) successor(index int, active bool, err error) int {
	var gap *GapError
	if errors.As(err, &gap) {
		f.Counted.Gaps.Add(1)
		return index
	}
	if active && errors.Is(err, ErrDisconnected) || errors.Is(err, errDeletions) {
		return index
	}
	return (index + 1) % len(f.opts.Servers)
}

// backOff returns the wait before the next session: none for one round of the
// servers, then longer and longer. Part of it is random, so that clients that lost a
// server at the same time do not come back at the same time.
func (f *Follower) backOff(failures int) time.Duration {
	rounds := failures / len(f.opts.Servers)
	if failures <= 1 || rounds == 0 || f.opts.Restless {
		return 0
	}
	return backoff.Wait(backOffFirst, backOffMost, rounds-1)
}
