package chp

import (
	"runtime"

	"github.com/klauspost/cpuid/v2"
)

// cores returns how many cores the process may keep busy. Threads of one core
// share its caches, and count once.
func cores() int {
	n := runtime.GOMAXPROCS(0)
	if t := cpuid.CPU.ThreadsPerCore; t > 1 {
		n = (n + t - 1) / t
	}
	return n
}
