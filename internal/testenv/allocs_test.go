package testenv

import (
	"runtime"
	"testing"
)

var sink []byte

// TestAllocs: what f allocates in the warm-up is not counted, what it allocates later
// is, and all of it runs on one processor.
func TestAllocs(t *testing.T) {
	if RaceDetector {
		t.Skip("under the race detector nothing is counted")
	}
	before, calls := runtime.GOMAXPROCS(0), 0
	n := Allocs(10, 100, func() {
		if n := runtime.GOMAXPROCS(0); n != 1 {
			t.Errorf("call %d runs on %d processors", calls, n)
		}
		if calls++; calls <= 10 {
			sink = make([]byte, 100)
		}
	})
	if n != 0 {
		t.Errorf("the warm-up counts: %v allocations", n)
	}
	if calls < 111 || runtime.GOMAXPROCS(0) != before {
		t.Errorf("%d calls, %d processors afterwards instead of %d", calls, runtime.GOMAXPROCS(0), before)
	}
	if n := Allocs(1, 100, func() { sink = make([]byte, 100) }); n != 1 {
		t.Errorf("%v allocations for one in each call", n)
	}
	// Something else that allocates spoils one attempt of the three.
	calls = 0
	if n := Allocs(0, 100, func() {
		if calls++; calls < 100 {
			sink = make([]byte, 1000)
			sink = make([]byte, 1000)
		}
	}); n != 0 {
		t.Errorf("%v allocations: the first attempt counts alone", n)
	}
}
