package timer

import (
	"testing"
	"time"
)

// The wheel gets smaller when most of the deadlines have gone.
func TestWheelShrinks(t *testing.T) {
	t.Parallel()
	const n = 120_000
	const now = time.Duration(0)
	var w wheel
	hash := func(i int) uint64 { return uint64(i+1) * 0x9E3779B97F4A7C15 }
	for i := range n {
		w.add(hash(i), int64(i), now+time.Hour, now)
	}
	measure := func() (chunks, peaks int) {
		for i := range w.byHash {
			peaks += w.byHash[i].peak
		}
		return len(w.chunks), peaks
	}
	chunks, peaks := measure()
	for i := range n {
		if i%10 != 0 {
			w.remove(hash(i))
		}
	}
	if c, p := measure(); c > chunks/5 || p > peaks/2 {
		t.Errorf("with a tenth of the keys: %d chunks of %d, maps for %d of %d", c, chunks, p, peaks)
	}
	fired := 0
	for w.advance(now+2*time.Hour, 1000, func(uint64, int64) { fired++ }) {
	}
	if fired != n/10 || w.len() != 0 || len(w.chunks) > 2 {
		t.Errorf("%d of %d fired, %d left, in %d chunks", fired, n/10, w.len(), len(w.chunks))
	}
}
