package engine

import (
	"clustermap/internal/queue"
	"errors"
	"testing"
	"time"
)

// TestLifeline: any received bytes remove a PING's deadline, and it is not set when bytes
// were received since the PING, or the reader is busy.
func TestLifeline(t *testing.T) {
	t.Parallel()
	c, _ := connected(t)
	armed := func(want bool, when string) {
		t.Helper()
		if c.life.armed.Load() != want {
			t.Errorf("%s: armed is %v", when, !want)
		}
	}
	hear := func() {
		must(t, c.Heard())
		c.Listening()
	}
	seen := c.life.reads.Load()
	c.answer(seen, time.Hour)
	armed(true, "after a PING")
	until := c.life.until
	c.answer(seen, 2*time.Hour)
	c.expect(3 * time.Hour)
	if c.life.until != until {
		t.Error("a later deadline took the place of an earlier")
	}
	c.expect(time.Minute)
	if !c.life.until.Before(until) {
		t.Error("an earlier deadline did not take the place of a later")
	}
	hear()
	armed(false, "after something was heard")
	c.answer(seen, time.Hour)
	armed(false, "something was heard since the PING")
	must(t, c.Heard())
	c.answer(c.life.reads.Load(), time.Hour)
	armed(false, "the reader is busy")
	c.Listening()
	c.answer(c.life.reads.Load(), time.Hour)
	armed(true, "after the next PING")
	c.Close(queue.ErrClosed)
	if err := c.Heard(); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// collector is a source that keeps the received bytes.
type collector struct {
	conn *conn
	buf  [64]byte
	got  []byte
}

func (c *collector) Space() []byte { return c.buf[:] }

func (c *collector) Received(n int) error {
	if err := c.conn.Heard(); err != nil {
		return err
	}
	defer c.conn.Listening()
	c.got = append(c.got, c.buf[:n]...)
	return nil
}

func (c *collector) Idle() {}

// TestLastLook: when a deadline has passed, unread bytes still count, because this
// process may have been stopped.
func TestLastLook(t *testing.T) {
	t.Parallel()
	ours, theirs := connected(t)
	_, err := theirs.Write([]byte("alive"))
	must(t, err)
	ours.expect(-time.Second)
	src := &collector{conn: ours}
	done := make(chan error, 1)
	go func() { done <- ours.receiveAlive(src) }()
	eventually(t, "it is heard", func() bool { return ours.life.reads.Load() == 2 })
	if ours.life.armed.Load() {
		t.Error("the deadline stays")
	}
	// Now for real.
	ours.expect(-time.Second)
	if err := <-done; err != ErrHeartbeatTimeout || string(src.got) != "alive" {
		t.Errorf("%v after %q", err, src.got)
	}
}
