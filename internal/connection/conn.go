// Package connection is one network connection of a socket: its end, its deadlines, and the
// silence of its peer. It knows bytes and no messages.
package connection

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/link"
	"clustermap/internal/queue"
)

// Conn is one network connection. Init must be called first. One goroutine may read while
// another one writes.
type Conn struct {
	Stream link.Stream
	gone   chan struct{} // closed when the connection must end
	life   lifeline

	halfClosed atomic.Bool // we have closed our side and expect the peer to close its own

	mu     sync.Mutex
	closed bool
	reason error // the reason, if we have closed it
}

// Init sets the connection, and closes nc if that fails. Over inproc there is none.
func (c *Conn) Init(nc net.Conn) error {
	c.gone = make(chan struct{})
	if nc == nil {
		return nil
	}
	if err := c.Stream.Init(nc); err != nil {
		nc.Close()
		return err
	}
	return nil
}

// Close makes the connection end: its reader and writer return, and then the
// goroutine that serves it calls Finish. Only the first reason is kept. Close
// never waits, so it may be called from anywhere, with any lock held.
//
// It leaves the descriptor open, because closing the descriptor waits until no
// read or write is in progress. The reader may be inside a read for as long as
// the application leaves its inbox full, or be waiting for the publisher's
// mutex, which the caller may hold, or be the caller itself (hooks.Prepare may
// disconnect the peer). A deadline in the past wakes both goroutines without
// waiting for them.
func (c *Conn) Close(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if reason == nil {
		reason = net.ErrClosed
	}
	c.closed, c.reason = true, reason
	close(c.gone)
	if c.Stream.Conn != nil { // not inproc
		// This fails on a connection that is already closed, where nothing
		// waits.
		_ = c.Stream.Conn.SetDeadline(time.Unix(1, 0))
	}
}

// SetDeadline sets the deadline for reading and writing, or removes it.
func (c *Conn) SetDeadline(t time.Time) error {
	return c.limit(func() error { return c.Stream.Conn.SetDeadline(t) })
}

// SetReadDeadline sets the deadline for reading, or removes it.
func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.limit(func() error { return c.Stream.Conn.SetReadDeadline(t) })
}

// limit sets a deadline unless Close has already set the last one.
func (c *Conn) limit(set func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.reason
	}
	return set()
}

// Finish closes the descriptor. Nothing reads or writes any more.
func (c *Conn) Finish() {
	c.Close(net.ErrClosed)
	if errors.Is(c.Cause(nil), queue.ErrSlowPeer) {
		c.Drop()
	}
	c.Stream.Conn.Close()
}

// Drop makes Finish reset the connection where that is possible. What the system holds for a
// peer that does not read may be megabytes: the peer notices now, not when it has read them or
// the system has given it up. And it does not take the end for an answer.
func (c *Conn) Drop() {
	if tc, ok := c.Stream.Conn.(*net.TCPConn); ok {
		_ = tc.SetLinger(0)
	}
}

// Cause returns why the connection has ended: our reason if we have closed it,
// and otherwise seen.
func (c *Conn) Cause(seen error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.reason
	}
	return seen
}

// Gone returns a channel that is closed when the connection must end.
func (c *Conn) Gone() <-chan struct{} { return c.gone }

// Local reports whether the peer is on this machine.
func (c *Conn) Local() bool { return link.Local(c.Stream.Conn) }

// Ending reports whether the connection must end.
func (c *Conn) Ending() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// HalfClose closes our direction and gives the peer time to close its own.
// Closing both at once would cause a reset if there is unread input or more
// input arrives, and a reset destroys bytes that the peer's system has not
// received yet.
//
// HalfClose returns when the peer has closed its side. Otherwise it returns
// halfCloseWait after the peer's system has received everything, or when that
// system has received nothing for LingerPatience.
func (c *Conn) HalfClose(ctx context.Context) {
	c.halfClosed.Store(true)
	if !c.closeWrite(ctx) {
		return
	}
	look := time.Tick(halfCloseWait)
	idle := time.Duration(0)
	for left := c.Stream.Unconfirmed(); ; {
		select {
		case <-c.gone:
			return
		case <-ctx.Done():
			return
		case <-look:
		}
		before := left
		idle += halfCloseWait
		if left = c.Stream.Unconfirmed(); left < before {
			idle = 0
		}
		if left == 0 || idle >= LingerPatience {
			return
		}
	}
}

// closeWrite closes our direction, and reports whether that was possible.
func (c *Conn) closeWrite(ctx context.Context) bool {
	cw, ok := c.Stream.Conn.(interface{ CloseWrite() error })
	if !ok {
		return false
	}
	if !c.Stream.Buffered() { // it may wait for the peer, as that of a *tls.Conn does
		stop := context.AfterFunc(ctx, func() { c.Close(queue.ErrClosed) })
		defer stop()
	}
	return cw.CloseWrite() == nil
}

// HalfClosed reports whether we have closed our side.
func (c *Conn) HalfClosed() bool { return c.halfClosed.Load() }

// Lock locks what guards the deadlines and the end of the connection, for the functions below.
func (c *Conn) Lock() { c.mu.Lock() }

// Unlock undoes Lock.
func (c *Conn) Unlock() { c.mu.Unlock() }

// Closed reports whether Close was called. The connection must be locked.
func (c *Conn) Closed() bool { return c.closed }

// Interrupt ends the read in progress, or the next one, with os.ErrDeadlineExceeded. The
// connection must be locked.
func (c *Conn) Interrupt() {
	if !c.closed {
		_ = c.Stream.Conn.SetReadDeadline(time.Unix(1, 0)) // fails on a closed connection, which needs none
	}
}

// Resume undoes Interrupt. The connection must be locked.
func (c *Conn) Resume() {
	if c.closed {
		return
	}
	var until time.Time
	if c.life.armed.Load() {
		until = c.life.until
	}
	_ = c.Stream.Conn.SetReadDeadline(until)
}
