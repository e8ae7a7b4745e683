package pace

import (
	"time"

	"golang.org/x/sys/unix"
)

// nap sleeps in a thread of its own: timers of a Go program that has nothing else to do can
// be late by a millisecond.
func nap(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	for unix.Nanosleep(&t, &t) == unix.EINTR {
	}
}
