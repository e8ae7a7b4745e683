//go:build linux && !portable

package queue

import "golang.org/x/sys/unix"

// yield lets threads run that wait for this processor, those of other processes too.
// Without any, it returns at once. The Go scheduler does not learn of the call, so the
// writers that were woken with the caller stay behind it, and have as much to write.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
