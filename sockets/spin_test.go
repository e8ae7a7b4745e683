//go:build linux && !portable

package sockets

import (
	"context"
	"testing"
	"time"
)

// TestSpin: who looks in vain does so ever less often, until it helps.
func TestSpin(t *testing.T) {
	t.Parallel()
	s := spin{limit: time.Nanosecond}
	wait := func() (looked bool) {
		for s.again() {
			looked = true
			time.Sleep(time.Microsecond)
		}
		return looked
	}
	for round := range 2 {
		for _, slept := range []int{0, 1, 3, 7, 15, 31, 63, 63, 63} {
			if !wait() {
				t.Fatalf("round %d: before %d waits without, it does not look", round, slept)
			}
			for i := range slept {
				if wait() {
					t.Fatalf("round %d: it looks in wait %d of %d without", round, i, slept)
				}
			}
		}
		s.limit = time.Hour
		for range 3 {
			if !s.again() {
				t.Fatal("it does not look again before the time is over")
			}
		}
		s.hit()
		s.limit = time.Nanosecond
	}
	s = spin{}
	if s.again() {
		t.Error("it looks though there is no time for it")
	}
}

// TestBusyPoll: the option says for how long the one that reads looks.
func TestBusyPoll(t *testing.T) {
	t.Parallel()
	if newSpin(&Options{BusyPoll: 1}).limit == 0 {
		t.Skip("one processor only: receive calls sleep at once")
	}
	for _, c := range []struct{ given, want time.Duration }{
		{0, DefaultBusyPoll}, {-1, 0}, {time.Millisecond, time.Millisecond},
	} {
		req, rep := couple(t, Options{BusyPoll: c.given})
		ctx, cancel := context.WithCancel(testContext(t))
		ended := rep.receiving(t, req, ctx)
		rep.in.mu.Lock()
		if l := rep.in.loan; l != nil && l.lent.spin.limit != c.want {
			t.Errorf("BusyPoll %v: the receive call looks for %v, want %v", c.given, l.lent.spin.limit, c.want)
		}
		rep.in.mu.Unlock()
		cancel()
		<-ended
	}
}
