package sockets

import "time"

// A reader that is this many bytes ahead of the application gives it some
// moments before it reads on, up to the high-water mark. An application that
// gets on has then what it receives in the processor's cache instead of in
// memory: at 64 KiB a message that is half as fast again. One that does not
// get on is left behind at once, until it has caught up.
const (
	aheadBytes = 2 << 20
	aheadGrace = time.Millisecond
)

// ahead says that the reader does well to wait.
func (q *inqueue) ahead() bool { return q.cost >= aheadBytes && !q.left && q.messages > 0 }

// wait waits until some of q was taken or, if it is not full, for a moment. It
// returns false, without the mutex, if the socket or the connection ended
// first. mu must be held.
func (in *inbox) wait(q *inqueue, full bool, gone <-chan struct{}) bool {
	q.blocked, q.until = true, in.limits.low()
	var over <-chan time.Time
	if !full {
		q.until.bytes = min(q.until.bytes, aheadBytes/2)
		if q.grace == nil {
			q.grace = time.NewTimer(in.grace)
		} else {
			q.grace.Reset(in.grace)
		}
		over = q.grace.C
		defer q.grace.Stop()
	}
	in.mu.Unlock()
	select {
	case <-q.resume:
		in.mu.Lock()
	case <-over:
		in.mu.Lock()
		q.blocked, q.left = false, true
	case <-gone:
		return false
	case <-in.done:
		return false
	}
	return true
}
