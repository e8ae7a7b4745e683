package follow

import "time"

// resyncLimit limits how often a client fetches a new snapshot of one server because of
// jumps: at once the first time, then after waits that double. It starts again after
// twice the longest wait without a jump.
type resyncLimit struct {
	wait time.Duration // between the last one and the next
	next time.Time     // earliest time of the next one
}

// delay returns the wait before the next resynchronization, and counts it.
func (l *resyncLimit) delay(now time.Time) time.Duration {
	if now.Sub(l.next) > 2*resyncMost {
		*l = resyncLimit{next: now}
	}
	delay := max(l.next.Sub(now), 0)
	l.wait = min(max(2*l.wait, resyncFirst), resyncMost)
	l.next = now.Add(delay + l.wait)
	return delay
}
