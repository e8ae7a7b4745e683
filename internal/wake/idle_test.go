package wake

import (
	"testing"
	"time"
)

// TestIdle: a socket was idle if its last message was long ago.
func TestIdle(t *testing.T) {
	t.Parallel()
	var i Idle
	i.last.Store(int64(-time.Hour))
	if !i.Over() {
		t.Error("not idle after an hour")
	}
	i.last.Store(int64(time.Hour))
	if i.Over() {
		t.Error("idle after a message that is yet to come")
	}
	if i.Rest(); !i.Over() || i.Over() {
		t.Error("one message is to come alone, and not the next")
	}
	if last := time.Duration(i.last.Load()); last < 0 || last > time.Since(idleStart) {
		t.Errorf("the last message was at %v", last)
	}
}
