package sockets

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"clustermap/zmtp"
)

// Heartbeats (RFC 37, Connection Heartbeating). A connection's writer sends
// PINGs by a ticker, between its other work; its reader waits with a deadline
// while there is reason to, and anything that is read takes the deadline away.
// So there is no goroutine for it, and no work a message.

// lifeline is what a connection's reader and writer know of the peer's life.
type lifeline struct {
	// reads is odd while the reader deals with what it has read, and even while
	// it waits for more. In the former case, which lasts for as long as the
	// application leaves its inbox full, it is not the peer that is silent.
	reads atomic.Uint64
	armed atomic.Bool // the read deadline is set; changes under conn.mu
	until time.Time   // to then; guarded by conn.mu
}

// heard begins and listening ends the dealing with bytes of the peer.
func (c *conn) heard() error {
	c.life.reads.Add(1)
	if !c.life.armed.Load() {
		return nil
	}
	return c.limit(c.disarm)
}

func (c *conn) listening() { c.life.reads.Add(1) }

// expect has the peer be heard of within a time, or else its connection ends.
// A deadline that is earlier already stays.
func (c *conn) expect(within time.Duration) {
	// It fails on a connection that ends, which the reader will see.
	_ = c.limit(func() error { return c.arm(time.Now().Add(within)) })
}

// answer does so after a PING was written, unless the peer was heard of since
// reads had the value seen. Who reads sets reads and then looks at armed, here
// it is the other way round: one of both sees the other.
func (c *conn) answer(seen uint64, within time.Duration) {
	_ = c.limit(func() error {
		if seen%2 == 1 || c.life.reads.Load() != seen {
			return nil
		}
		if err := c.arm(time.Now().Add(within)); err != nil || c.life.reads.Load() == seen {
			return err
		}
		return c.disarm()
	})
}

// arm and disarm are called with mu held.
func (c *conn) arm(until time.Time) error {
	if c.life.armed.Load() && !until.Before(c.life.until) {
		return nil
	}
	c.life.until = until
	c.life.armed.Store(true)
	return c.stream.conn.SetReadDeadline(until)
}

func (c *conn) disarm() error {
	c.life.armed.Store(false)
	return c.stream.conn.SetReadDeadline(time.Time{})
}

// lastLook is how long the reader waits once more when the deadline has passed:
// for nothing, if the peer is alive. A process that was stopped for a while, or
// had no processor, finds its deadline passed and the answer come in time.
const lastLook = 10 * time.Millisecond

// receiveAlive feeds src until the connection ends or the peer is found dead.
func (c *conn) receiveAlive(src source) error {
	looked := false
	var at uint64 // reads, when it has looked
	for {
		err := c.stream.receive(src)
		if !errors.Is(err, os.ErrDeadlineExceeded) || c.ending() {
			return err
		}
		reads := c.life.reads.Load()
		if looked && at == reads && c.life.armed.Load() {
			return ErrHeartbeatTimeout
		}
		looked, at = true, reads
		again := func() error {
			if !c.life.armed.Load() {
				return nil // taken away just when it had passed
			}
			return c.stream.conn.SetReadDeadline(time.Now().Add(lastLook))
		}
		if err := c.limit(again); err != nil {
			return net.ErrClosed
		}
	}
}

// beats has the outbox bring up a PING at each interval, if there is to be one
// and the peer knows of it; stop ends that.
func (w *writer) beats() (stop func()) {
	o := &w.pipe.socket.opts
	if o.HeartbeatInterval == 0 || w.peer.info.Major < 3 {
		return func() {}
	}
	ticker := time.NewTicker(o.HeartbeatInterval)
	out := &w.pipe.out
	out.beat = ticker.C
	out.ping = zmtp.AppendPing(nil, uint16(o.HeartbeatTTL/pingUnit), nil)
	return func() {
		ticker.Stop()
		out.beat, out.pinged = nil, false
	}
}
