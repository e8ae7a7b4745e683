package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// begin ties the process's own clock to the one that all processes of the machine share.
var begin, beginTime = tie()

// now returns nanoseconds of CLOCK_MONOTONIC, at the cost of time.Now: both advance at
// the same pace, so the shared clock is read only once.
func now() int64 { return begin + int64(time.Since(beginTime)) }

// tie reads both clocks as nearly at the same moment as it can.
func tie() (shared int64, own time.Time) {
	best := time.Duration(-1)
	for range 100 {
		var t unix.Timespec
		before := time.Now()
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
			panic(err) // every system that this runs on has it
		}
		if gap := time.Since(before); best < 0 || gap < best {
			best, shared, own = gap, t.Nano(), before.Add(gap/2)
		}
	}
	return shared, own
}
