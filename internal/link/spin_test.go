//go:build linux && !portable

package link

import (
	"testing"
	"time"
)

// TestSpin: a reader that looks in vain does so ever less often, until it finds bytes.
func TestSpin(t *testing.T) {
	t.Parallel()
	s := Spin{Limit: time.Nanosecond}
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
		s.Limit = time.Hour
		for range 3 {
			if !s.again() {
				t.Fatal("it does not look again before the time is over")
			}
		}
		s.hit()
		s.Limit = time.Nanosecond
	}
	s.Limit, s.stream = time.Hour, true
	if s.again() {
		t.Error("it looks in a stream of messages")
	}
	if s.stream = false; !s.again() {
		t.Error("a wait in a stream counts as one in which it has looked in vain")
	}
	s = Spin{}
	if s.again() {
		t.Error("it looks though there is no time for it")
	}
	if NewSpin(-1).Limit != 0 {
		t.Error("a negative time counts")
	}
}
