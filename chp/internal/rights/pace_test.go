package rights

import (
	"testing"
	"time"
)

// A client sends what it may and a burst, and then waits for as long as it takes at its limits.
func TestPace(t *testing.T) {
	t.Parallel()
	var a account
	now := time.Now()
	l := Limits{Updates: 1000, Bytes: 100_000}
	if wait := a.take(now, l, 250, 1000); wait != 0 {
		t.Errorf("after a burst: %v", wait)
	}
	if wait := a.take(now, l, 100, 1000); wait != 100*time.Millisecond {
		t.Errorf("100 updates: %v", wait)
	}
	if wait := a.take(now, l, 1, 50_000); wait != 600*time.Millisecond {
		t.Errorf("50,000 bytes: %v", wait)
	}
	if !a.excess(now) || a.excess(now.Add(600*time.Millisecond)) {
		t.Error("the excess lasts for another time")
	}
	if wait := a.take(now, l, 1_000_000, 1000); wait != mostPause {
		t.Errorf("a million updates: %v", wait)
	}
	if wait := a.take(now.Add(time.Hour), l, 251, 0); wait != time.Millisecond {
		t.Errorf("after a long time: %v", wait)
	}
	if wait := new(account).take(now, Limits{}, 1_000_000, 1<<30); wait != 0 {
		t.Errorf("without limits: %v", wait)
	}
}
