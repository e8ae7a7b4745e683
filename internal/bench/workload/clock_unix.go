//go:build unix

package workload

import (
	"time"

	"golang.org/x/sys/unix"
)

// now reads CLOCK_MONOTONIC, which counts from a moment common to all processes.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return time.Now().UnixNano()
	}
	return t.Nano()
}
