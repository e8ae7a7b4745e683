package chp

import "time"

// A jump in the sequences of a server that is not ours means that updates are
// missing, or that the server counts in steps. A new snapshot mends the former,
// and does nothing for the latter, so it must not be taken for every update.
const (
	resyncFirst = time.Second // between the first two
	resyncMost  = time.Minute
)

// resyncLimit limits how often a client takes a new snapshot of one server because
// of jumps: at once the first time, then after waits that double. It starts anew
// when there was no jump for twice the longest wait.
type resyncLimit struct {
	wait time.Duration // from the last one to the next
	next time.Time     // when the next one may be
}

// delay returns how long to wait for the next resynchronisation, and counts it.
func (l *resyncLimit) delay(now time.Time) time.Duration {
	if now.Sub(l.next) > 2*resyncMost {
		*l = resyncLimit{next: now}
	}
	delay := max(l.next.Sub(now), 0)
	l.wait = min(max(2*l.wait, resyncFirst), resyncMost)
	l.next = now.Add(delay + l.wait)
	return delay
}

// resync ends the session for a jump that stream noted: now, with the error that
// it returns, or when the limit allows it.
func (s *session) resync() error {
	if s.resyncing != nil {
		return nil
	}
	gap := s.stream.missing
	delay := s.client.resyncs[s.index].delay(time.Now())
	if delay == 0 {
		return gap
	}
	s.resyncing = time.AfterFunc(delay, func() { s.fail(gap) })
	return nil
}
