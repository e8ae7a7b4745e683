package connection

import (
	"errors"
	"io"
	"runtime"
	"testing"
	"time"

	"clustermap/internal/queue"
	"clustermap/internal/testenv"
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
	seen := c.Reads()
	c.Answer(seen, Flow{}, time.Hour)
	armed(true, "after a PING")
	until := c.life.until
	c.Answer(seen, Flow{}, 2*time.Hour)
	c.Expect(3 * time.Hour)
	if c.life.until != until {
		t.Error("a later deadline took the place of an earlier")
	}
	c.Expect(time.Minute)
	if !c.life.until.Before(until) {
		t.Error("an earlier deadline did not take the place of a later")
	}
	hear()
	armed(false, "after something was heard")
	c.Answer(seen, Flow{}, time.Hour)
	armed(false, "something was heard since the PING")
	must(t, c.Heard())
	c.Answer(c.Reads(), Flow{}, time.Hour)
	armed(false, "the reader is busy")
	c.Listening()
	c.Answer(c.Reads(), Flow{}, time.Hour)
	armed(true, "after the next PING")
	c.Close(queue.ErrClosed)
	if err := c.Heard(); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// collector is a source that keeps the received bytes.
type collector struct {
	conn *Conn
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
	ours.Expect(-time.Second)
	src := &collector{conn: ours}
	done := make(chan error, 1)
	go func() { done <- ours.ReceiveAlive(src, time.Hour) }()
	eventually(t, "it is heard", func() bool { return ours.Reads() == 2 })
	if ours.life.armed.Load() {
		t.Error("the deadline stays")
	}
	// Now for real.
	ours.Expect(-time.Second)
	if err := <-done; err != ErrHeartbeatTimeout || string(src.got) != "alive" {
		t.Errorf("%v after %q", err, src.got)
	}
}

// TestPingBehindOwnData: as long as the peer's system confirms bytes that went out before
// a PING, and once more when all are confirmed, the peer has all its time to answer. It has
// not if nothing more is confirmed, or all was before.
func TestPingBehindOwnData(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		ping      Flow
		confirmed []int64 // at each look
		delays    int     // how many of them
	}{
		"not a PING":                  {Flow{}, []int64{5000}, 0},
		"no bytes before it":          {Flow{1000, 1000}, []int64{1012, 1024}, 0},
		"slow link":                   {Flow{1000, 100}, []int64{300, 301, 900, 1000, 1000}, 4},
		"the peer's machine is gone":  {Flow{1000, 100}, []int64{100}, 0},
		"it goes meanwhile":           {Flow{1000, 100}, []int64{500, 500}, 1},
		"bytes behind it do not help": {Flow{1000, 100}, []int64{1500, 2000, 3000}, 1},
	} {
		n := 0
		for n < len(test.confirmed) && test.ping.delays(test.confirmed[n]) {
			n++
		}
		if n != test.delays {
			t.Errorf("%s: delayed at %d looks, want %d", what, n, test.delays)
		}
	}
}

// TestPingOnSlowLink: the deadline of a PING behind bytes that the peer's system takes slowly
// is put off by the whole time-out, and what the peer itself has promised is not.
func TestPingOnSlowLink(t *testing.T) {
	t.Parallel()
	ours, theirs := connected(t)
	if f := ours.Flow(); f.confirmed != f.sent {
		t.Errorf("nothing was sent, and %+v", f)
	}
	const size = 32 << 20 // more than the systems hold
	go func() { _, _ = ours.Stream.Send([][]byte{make([]byte, size)}) }()
	var ping Flow
	if runtime.GOOS == "linux" && !testenv.Portable {
		eventually(t, "bytes wait", func() bool {
			ping = ours.Flow()
			return ping.confirmed < ping.sent
		})
	}
	_, err := io.CopyN(io.Discard, theirs, size)
	must(t, err)
	eventually(t, "the peer's system has confirmed them", func() bool { return ours.Flow().confirmed >= ping.sent })
	ours.Answer(ours.Reads(), ping, -time.Second)
	done := make(chan error, 1)
	go func() { done <- ours.ReceiveAlive(&collector{conn: ours}, time.Hour) }()
	if ping != (Flow{}) {
		eventually(t, "it has more time", func() bool {
			ours.mu.Lock()
			defer ours.mu.Unlock()
			return time.Until(ours.life.until) > time.Minute
		})
		ours.Expect(-time.Second)
	}
	if err := <-done; err != ErrHeartbeatTimeout {
		t.Error(err)
	}
}
