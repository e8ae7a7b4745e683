//go:build unix

package mirror

import "syscall"

// nonBlock lets a FIFO that has taken the place of a file be opened without waiting for a writer.
const nonBlock = syscall.O_NONBLOCK
