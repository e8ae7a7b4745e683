package testenv

import (
	"runtime"
	"testing"
)

// Allocs is [testing.AllocsPerRun] after warm calls of f, which run on one processor
// like those that it counts.
//
// Goroutines that pass on work in turn queue more of it on one processor than side by
// side on several. With a warm-up on all processors the pools would grow to their size
// while allocations are counted.
func Allocs(warm, runs int, f func()) float64 {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for range warm {
		f()
	}
	return testing.AllocsPerRun(runs, f)
}
