//go:build !linux

package pace

import "time"

// nap sleeps.
func nap(d time.Duration) { time.Sleep(d) }
