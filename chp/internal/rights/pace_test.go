package rights

import (
	"fmt"
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
	if !a.spent(now) || !a.spent(now.Add(600*time.Millisecond)) || a.spent(now.Add(600*time.Millisecond+burst)) {
		t.Error("what was sent is remembered for another time")
	}
	if wait := a.take(now, l, 1_000_000, 1000); wait != 1000*time.Second+600*time.Millisecond {
		t.Errorf("a million updates: %v", wait)
	}
	if wait := a.take(now.Add(time.Hour), l, 251, 0); wait != time.Millisecond {
		t.Errorf("after a long time: %v", wait)
	}
	if wait := new(account).take(now, Limits{}, 1_000_000, 1<<30); wait != 0 {
		t.Errorf("without limits: %v", wait)
	}
}

// What another door makes for somebody counts together with what comes over connections, and those who have sent too much
// without a connection are remembered, so many.
func TestChargesAreRemembered(t *testing.T) {
	t.Parallel()
	var p Peers
	role := func(name string) *Role { return &Role{name: name, limits: Limits{Updates: 1000}} }
	if wait := p.Charge(role("anna"), 250, 0); wait != 0 {
		t.Errorf("after a burst: %v", wait)
	}
	if wait := p.Charge(role("anna"), 1000, 0); wait < 900*time.Millisecond {
		t.Errorf("1,000 updates more: %v", wait)
	}
	if wait := p.Charge(role("bert"), 1, 0); wait != 0 {
		t.Errorf("another name: %v", wait)
	}
	for i := range 3 * maxIdle {
		p.Charge(role(fmt.Sprint(i)), 100_000, 0)
	}
	if n := len(p.accounts); n > maxIdle+1 {
		t.Errorf("%d accounts", n)
	}
	if wait := (*Peers)(nil).Charge(role("anna"), 1_000_000, 0); wait != 0 {
		t.Errorf("without rights: %v", wait)
	}
}
