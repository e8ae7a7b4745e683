package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// nap sleeps in a thread of its own: timers of a Go program that has nothing else to do can be
// late by a millisecond.
func nap(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil) // a signal ends it early, which does no harm
}
