package connection

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"clustermap/internal/link"
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
	armed atomic.Bool // the read deadline is set; changes under Conn.mu
	until time.Time   // the read deadline; guarded by Conn.mu
	ping  Flow        // when the PING went out to which it belongs; guarded by Conn.mu
}

// Flow is how far a connection's bytes have come: accepted by this system for sending, and
// confirmed by the peer's, as far as this system tells. They are counted from the same
// place, so only differences mean anything.
type Flow struct{ sent, confirmed int64 }

// Flow returns how far the bytes have come. Some that are sent meanwhile may be missing.
func (c *Conn) Flow() Flow {
	sent := c.Stream.Moved.Load() // first: what is sent meanwhile must not pass for confirmed
	return Flow{sent, sent - int64(c.Stream.Unconfirmed())}
}

// delays reports whether a PING, behind the bytes that f says were sent, could not be
// answered yet: some of them were not confirmed at the last look, and more are now. On a slow
// link they may be megabytes, and the peer whose system confirms them is not silent. It
// needs all its time when they have arrived.
func (f *Flow) delays(confirmed int64) bool {
	delayed := f.confirmed < f.sent && f.confirmed < confirmed
	f.confirmed = confirmed
	return delayed
}

// Heard marks the beginning, and Listening the end, of handling bytes from the
// peer.
func (c *Conn) Heard() error {
	c.life.reads.Add(1)
	if !c.life.armed.Load() {
		return nil
	}
	return c.limit(c.disarm)
}

func (c *Conn) Listening() { c.life.reads.Add(1) }

// Dealing reports whether the reader handles bytes that it has read.
func (c *Conn) Dealing() bool { return c.life.reads.Load()%2 == 1 }

// Expect ends the connection unless bytes are received from the peer within the given
// time. An earlier deadline remains in force.
func (c *Conn) Expect(within time.Duration) {
	// It fails on a connection that ends, which the reader will see.
	_ = c.limit(func() error { return c.arm(time.Now().Add(within), Flow{}) })
}

// Answer is like expect, after a PING was written behind the bytes in ping, unless bytes were
// received since reads had the value seen. The reader changes reads and then checks armed,
// and answer does it in the opposite order, so at least one of them notices the other.
func (c *Conn) Answer(seen uint64, ping Flow, within time.Duration) {
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
func (c *Conn) arm(until time.Time, ping Flow) error {
	if c.life.armed.Load() && !until.Before(c.life.until) {
		return nil
	}
	c.life.until, c.life.ping = until, ping
	c.life.armed.Store(true)
	return c.Stream.Conn.SetReadDeadline(until)
}

func (c *Conn) disarm() error {
	c.life.armed.Store(false)
	return c.Stream.Conn.SetReadDeadline(time.Time{})
}

// ReceiveAlive feeds src until the connection ends or the peer is silent for
// too long.
func (c *Conn) ReceiveAlive(src link.Source, patience time.Duration) error {
	looked := false
	var at uint64 // the value of reads at the last look
	for {
		err := c.Stream.Receive(src)
		if !errors.Is(err, os.ErrDeadlineExceeded) || c.Ending() {
			return err
		}
		reads := c.life.reads.Load()
		looked, at = looked && at == reads, reads
		err = c.limit(func() error {
			more := lastLook
			switch {
			case !c.life.armed.Load():
				return nil // disarmed just after the deadline had passed
			case c.life.ping.delays(c.Flow().confirmed):
				looked, more = false, patience
			case looked:
				return ErrHeartbeatTimeout
			default:
				looked = true
			}
			c.life.until = time.Now().Add(more)
			return c.Stream.Conn.SetReadDeadline(c.life.until)
		})
		if err != nil {
			return err
		}
	}
}

// ErrHeartbeatTimeout ends the connection of a peer that is silent for too long. Package
// sockets documents it.
var ErrHeartbeatTimeout = errors.New("sockets: heartbeat timeout")

// Reads returns a number that changes when bytes arrive.
func (c *Conn) Reads() uint64 { return c.life.reads.Load() }
