package buf

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// newReserve returns a reserve with a clock that is set by hand.
func newReserve() (r *reserve, now *time.Time) {
	now = new(time.Time)
	*now = now.Add(time.Hour)
	return &reserve{now: func() time.Time { return *now }}, now
}

// has reports whether there is a reserve.
func (r *reserve) has() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.memory != nil
}

// TestReserveOfFastPrograms: the reserve is there while much is allocated in a short time. A
// collection ends it when that is over.
func TestReserveOfFastPrograms(t *testing.T) {
	t.Parallel()
	r, now := newReserve()
	for i, step := range []struct {
		bytes     int
		after     time.Duration
		collected bool
		want      bool
	}{
		{bytes: reserveStep},
		{bytes: reserveStep, after: stepTime + 1},
		{bytes: reserveStep - 1, after: stepTime},
		{bytes: 1, want: true},
		{collected: true, after: stepTime, want: true},
		{bytes: reserveStep - 1, after: 1, want: true},
		{collected: true},
		{bytes: 1},
		{bytes: reserveStep, want: true},
	} {
		*now = now.Add(step.after)
		if step.bytes > 0 {
			r.allocated(step.bytes)
		}
		if step.collected {
			r.collected()
		}
		if r.has() != step.want {
			t.Fatalf("step %d: %v", i, !step.want)
		}
	}
}

// TestReserveEnds: the garbage collector says that it has run, each time.
func TestReserveEnds(t *testing.T) {
	t.Parallel()
	r := &reserve{now: time.Now}
	for !r.has() { // on a busy machine the steps may be slow
		r.allocated(reserveStep)
	}
	for r.has() {
		runtime.GC()
	}
}

// TestReserveInBubble: a bubble of testing/synctest can begin one.
func TestReserveInBubble(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		Allocated(reserveStep)
		Allocated(reserveStep)
	})
}
