package chp

import (
	"runtime"

	"github.com/klauspost/cpuid/v2"
)

// cores returns the number of cores that the process may keep busy. The threads of one
// core share its caches and count once.
func cores() int {
	n := runtime.GOMAXPROCS(0)
	if t := cpuid.CPU.ThreadsPerCore; t > 1 {
		n = (n + t - 1) / t
	}
	return n
}
