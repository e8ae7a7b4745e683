package backoff

import (
	"testing"
	"time"
)

// TestBackoff: the waiting times double up to the largest, stay there, and vary.
func TestBackoff(t *testing.T) {
	t.Parallel()
	b := Backoff{Min: 10 * time.Millisecond, Max: 70 * time.Millisecond}
	for round := range 3 {
		for _, top := range []time.Duration{10, 20, 40, 70, 70} {
			top *= time.Millisecond
			if d := b.Next(); d < top/2 || d > top {
				t.Errorf("round %d: %v is not between %v and %v", round, d, top/2, top)
			}
		}
		b.Reset()
	}
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[b.Next()] = true
	}
	if len(seen) < 10 {
		t.Errorf("only %d different waiting times in 100", len(seen))
	}
}

// TestBackoffForEver: many tries overflow nothing.
func TestBackoffForEver(t *testing.T) {
	t.Parallel()
	for _, b := range []Backoff{{Min: 1, Max: 1<<63 - 1}, {Min: time.Hour, Max: 1<<63 - 1}, {Min: 1, Max: 1}} {
		for n := range 1000 {
			if d := b.Next(); d < 0 || d > b.Max {
				t.Fatalf("%v at try %d", d, n)
			}
		}
	}
}
