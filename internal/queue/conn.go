package queue

import "sync/atomic"

// Conn is a connection as the queues know it: something to tell from others, and the
// counts of what went over it, a batch at a time. Outboxes count what goes out, and who
// puts a batch into an inbox has counted that.
type Conn struct {
	MessagesIn, BytesIn, MessagesOut, BytesOut atomic.Uint64
	Discarded                                  atomic.Uint64 // of MessagesIn

	Of any // what the connection belongs to
}

func (c *Conn) sent(n HWM) {
	if c != nil && n != (HWM{}) {
		c.MessagesOut.Add(uint64(n.Messages))
		c.BytesOut.Add(uint64(n.Bytes))
	}
}

// Discard counts messages that the application does not receive. As in tests, there may
// be no connection.
func (c *Conn) Discard(messages int) {
	if c != nil && messages > 0 {
		c.Discarded.Add(uint64(messages))
	}
}
