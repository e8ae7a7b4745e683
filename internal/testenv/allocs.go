package testenv

import (
	"runtime"
	"testing"
)

// Allocs returns how many allocations a call of f makes in its steady state, rounded
// down: the mean of runs calls after warm others, in the best of three attempts. No
// other test may run meanwhile. Under the race detector pools drop some of what they
// are given; then Allocs calls f once, for the detector, and returns 0.
//
// The warm-up runs on one processor like the calls that count. Goroutines that pass on
// work in turn queue more of it on one processor than side by side on several, so after
// a warm-up on all of them pools would still grow. Allocations of the whole process
// count, so a goroutine that an earlier test left may add some to one attempt.
func Allocs(warm, runs int, f func()) float64 {
	if RaceDetector {
		f()
		return 0
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for range warm {
		f()
	}
	least := testing.AllocsPerRun(runs, f)
	for range 2 {
		if least == 0 {
			break
		}
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}
