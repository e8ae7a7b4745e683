//go:build !unix

package workload

import "time"

// now falls back on the wall clock.
func now() int64 { return time.Now().UnixNano() }
