package queue

import "time"

// A reader that is aheadBytes ahead of the application waits aheadGrace before it
// goes on, up to the high-water mark. If the application keeps up, it then finds
// the received messages in the processor's cache instead of in memory: messages of 64 KiB
// are half as fast again. If the application does not catch up during the wait, the
// reader waits no more until the application has caught up.
const (
	aheadBytes = 2 << 20
	aheadGrace = time.Millisecond
)

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
