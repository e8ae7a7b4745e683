package queue

import "time"

// ahead reports whether the reader of a queue should wait.
func (q *Inqueue) ahead() bool { return q.size.Bytes >= aheadBytes && !q.slow && q.size.Messages > 0 }

// pause prepares for a wait of a reader that is ahead, and returns the channel that
// ends it. mu must be held.
func (in *Inbox) pause(q *Inqueue) <-chan time.Time {
	q.until = in.limits.Low()
	q.until.Bytes = min(q.until.Bytes, aheadBytes/2)
	if q.grace == nil {
		q.grace = time.NewTimer(in.grace)
	} else {
		q.grace.Reset(in.grace)
	}
	return q.grace.C
}
