package engine

import (
	"testing"
	"time"
)

func TestLull(t *testing.T) {
	t.Parallel()
	var l lull
	l.last.Store(int64(-time.Hour))
	if !l.over() {
		t.Error("no lull after an hour")
	}
	l.last.Store(int64(time.Hour))
	if l.over() {
		t.Error("a lull after a message that is yet to come")
	}
	if last := time.Duration(l.last.Load()); last < 0 || last > time.Since(lullStart) {
		t.Errorf("the last message was at %v", last)
	}
}
