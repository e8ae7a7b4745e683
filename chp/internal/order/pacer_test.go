package order

import (
	"context"
	"testing"
	"time"
)

// Nobody waits while queues are at most half full. Beyond that the wait grows to
// that of the slowest rate, and it is bounded.
func TestPacerWaits(t *testing.T) {
	t.Parallel()
	level := 0.0
	now := time.Unix(0, 0)
	const size = 1 << 20
	waited := func(slowest int) (sum time.Duration) {
		p := NewPacer(slowest, func() float64 { return level })
		for range 8 {
			now = now.Add(time.Second)
			w := p.next(size, now)
			if w > pacerMost {
				t.Errorf("a wait of %v", w)
			}
			sum += w
		}
		return sum
	}
	for _, c := range []struct {
		level    float64
		slowest  int
		min, max time.Duration
	}{
		{0.5, 64 << 20, 0, 0},
		{0.75, 64 << 20, 62 * time.Millisecond, 63 * time.Millisecond},
		{1, 64 << 20, 125 * time.Millisecond, 125 * time.Millisecond},
		{1, -1, 0, 0},
		{1, 1, 8 * pacerMost, 8 * pacerMost},
	} {
		level = c.level
		if w := waited(c.slowest); w < c.min || w > c.max {
			t.Errorf("level %v, slowest %d: %v, want %v to %v", c.level, c.slowest, w, c.min, c.max)
		}
	}
}

// A batch that takes longer than one wait is waited for until the slowest rate is
// kept, or the subscribers have caught up.
func TestPacerWaitsForLargeBatches(t *testing.T) {
	t.Parallel()
	level := 1.0
	p := NewPacer(10<<20, func() float64 { return level })
	start := time.Now()
	if !p.Wait(context.Background(), 3<<20) {
		t.Error("it was ended")
	}
	if d := time.Since(start); d < 290*time.Millisecond {
		t.Errorf("3 MiB at 10 MiB a second took %v", d)
	}
	level = 0
	p.looked = time.Time{}
	if !p.Wait(context.Background(), 1<<30) {
		t.Error("it was ended")
	}
	level = 1
	p.looked = time.Time{}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if p.Wait(ctx, 1<<30) {
		t.Error("it has not ended with the context")
	}
}
