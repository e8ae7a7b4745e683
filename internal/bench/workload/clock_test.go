package workload

import (
	"testing"
	"time"
)

// TestTie: a pause between two readings does not get into the clock.
func TestTie(t *testing.T) {
	t.Parallel()
	zero := time.Unix(1000, 0)
	for name, pauses := range map[string][]time.Duration{
		"none":             {0},
		"at first":         {5 * time.Millisecond, time.Second, 0},
		"always, some":     {5 * time.Millisecond, 3 * time.Microsecond, 7 * time.Millisecond},
		"always, the same": {3 * time.Microsecond},
	} {
		var elapsed time.Duration // since zero, on both clocks
		i := 0
		own := func() time.Time {
			elapsed += 10 * time.Nanosecond
			return zero.Add(elapsed)
		}
		shared := func() int64 {
			elapsed += 10*time.Nanosecond + pauses[i%len(pauses)]/2
			now := int64(elapsed)
			elapsed += pauses[i%len(pauses)] / 2
			i++
			return now
		}
		at, atOwn := tie(shared, own)
		if off := time.Duration(at) - atOwn.Sub(zero); off.Abs() > 2*time.Microsecond {
			t.Errorf("pauses %s: the clocks are %v apart", name, off)
		}
		if i > tieTries {
			t.Errorf("pauses %s: read %d times", name, i)
		}
	}
}
