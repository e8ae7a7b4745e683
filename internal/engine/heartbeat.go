package engine

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"clustermap/internal/link"
	"clustermap/zmtp"
)

// Heartbeats (RFC 37, section "Connection Heartbeating"). The writer of a
// connection sends PINGs, driven by a ticker, between its other work. The reader
// waits with a deadline only when it expects bytes, and every read removes the deadline.
// So heartbeats need no goroutine and no work per message.

// lifeline is the state that a connection's reader and writer share to detect a
// silent peer.
type lifeline struct {
	// reads is odd while the reader handles the bytes that it has read, and even while it
	// waits for more. While it is odd, which lasts as long as the application leaves its
	// inbox full, the peer is not to blame for the silence.
	reads atomic.Uint64
	armed atomic.Bool // the read deadline is set; changes under conn.mu
	until time.Time   // the read deadline; guarded by conn.mu
	ping  flow        // when the PING went out to which it belongs; guarded by conn.mu
}

// flow is how far a connection's bytes have come: accepted by this system for sending, and
// confirmed by the peer's, as far as this system tells. They are counted from the same
// place, so only differences mean anything.
type flow struct{ sent, confirmed int64 }

// flow returns how far the bytes have come. Some that are sent meanwhile may be missing.
func (c *conn) flow() flow {
	sent := c.stream.Moved.Load() // first: what is sent meanwhile must not pass for confirmed
	return flow{sent, sent - int64(c.stream.Unconfirmed())}
}

// delays reports whether a PING, behind the bytes that f says were sent, could not be
// answered yet: some of them were not confirmed at the last look, and more are now. On a slow
// link they may be megabytes, and the peer whose system confirms them is not silent. It
// needs all its time when they have arrived.
func (f *flow) delays(confirmed int64) bool {
	delayed := f.confirmed < f.sent && f.confirmed < confirmed
	f.confirmed = confirmed
	return delayed
}

// Heard marks the beginning, and Listening the end, of handling bytes from the
// peer.
func (c *conn) Heard() error {
	c.life.reads.Add(1)
	if !c.life.armed.Load() {
		return nil
	}
	return c.limit(c.disarm)
}

func (c *conn) Listening() { c.life.reads.Add(1) }

// Dealing implements bounds.Conn.
func (c *conn) Dealing() bool { return c.life.reads.Load()%2 == 1 }

// expect ends the connection unless bytes are received from the peer within the given
// time. An earlier deadline remains in force.
func (c *conn) expect(within time.Duration) {
	// It fails on a connection that ends, which the reader will see.
	_ = c.limit(func() error { return c.arm(time.Now().Add(within), flow{}) })
}

// answer is like expect, after a PING was written behind the bytes in ping, unless bytes were
// received since reads had the value seen. The reader changes reads and then checks armed,
// and answer does it in the opposite order, so at least one of them notices the other.
func (c *conn) answer(seen uint64, ping flow, within time.Duration) {
	_ = c.limit(func() error {
		if seen%2 == 1 || c.life.reads.Load() != seen {
			return nil
		}
		if err := c.arm(time.Now().Add(within), ping); err != nil || c.life.reads.Load() == seen {
			return err
		}
		return c.disarm()
	})
}

// arm sets the read deadline unless it is earlier already, and disarm removes it.
// mu must be held.
func (c *conn) arm(until time.Time, ping flow) error {
	if c.life.armed.Load() && !until.Before(c.life.until) {
		return nil
	}
	c.life.until, c.life.ping = until, ping
	c.life.armed.Store(true)
	return c.stream.Conn.SetReadDeadline(until)
}

func (c *conn) disarm() error {
	c.life.armed.Store(false)
	return c.stream.Conn.SetReadDeadline(time.Time{})
}

// lastLook is how long the reader waits once more when the deadline has passed.
// A process that was stopped for a while, or had no processor, finds both that
// its deadline has passed and that the answer has arrived.
const lastLook = 10 * time.Millisecond

// receiveAlive feeds src until the connection ends or the peer is silent for
// too long.
func (c *conn) receiveAlive(src link.Source) error {
	looked := false
	var at uint64 // the value of reads at the last look
	for {
		err := c.stream.Receive(src)
		if !errors.Is(err, os.ErrDeadlineExceeded) || c.ending() {
			return err
		}
		reads := c.life.reads.Load()
		looked, at = looked && at == reads, reads
		err = c.limit(func() error {
			more := lastLook
			switch {
			case !c.life.armed.Load():
				return nil // disarmed just after the deadline had passed
			case c.life.ping.delays(c.flow().confirmed):
				looked, more = false, c.config.HeartbeatTimeout
			case looked:
				return ErrHeartbeatTimeout
			default:
				looked = true
			}
			c.life.until = time.Now().Add(more)
			return c.stream.Conn.SetReadDeadline(c.life.until)
		})
		if err != nil {
			return err
		}
	}
}

// beats makes take add a PING at each interval, if heartbeats are enabled and the
// peer understands PING. stop ends that.
func (w *writer) beats() (stop func()) {
	o := w.conn.config
	if o.HeartbeatInterval == 0 || w.peer.info.Major < 3 {
		return func() {}
	}
	w.load.Beat = time.Tick(o.HeartbeatInterval)
	w.load.Ping = zmtp.AppendPing(nil, uint16(o.HeartbeatTTL/PingUnit), nil)
	return func() { w.load.Beat, w.load.Pinged = nil, false }
}
