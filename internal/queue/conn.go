package queue

import "sync/atomic"

// Conn is a connection as the queues know it: an identity, and the counts of its messages
// and bytes, a batch at a time. Outboxes count the outgoing ones, and the caller of
// Inbox.Put has counted those of its batch.
type Conn struct {
	MessagesIn, BytesIn, MessagesOut, BytesOut atomic.Uint64
	Discarded                                  atomic.Uint64 // of MessagesIn

	Of any // the owner of the connection
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
