//go:build linux && !portable

package queue

import "golang.org/x/sys/unix"

// yield lets other threads that wait for this processor run first, including those of other
// processes. Without any, it returns at once. The Go scheduler does not learn of the call
// and starts nothing in place of the caller: the other writers that were woken wait behind
// it, and more messages have come for them too.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
