//go:build linux && !portable

package blackbox

import "golang.org/x/sys/unix"

// AllowedCores returns the cores that this process may use, in ascending order, or nil if
// unknown: on systems other than Linux, and on machines with more than 1024 cores.
func AllowedCores() []int {
	// The caller's thread may be bound to one core. A new goroutine runs on another
	// thread, which is not.
	cores := make(chan []int)
	go func() { cores <- threadCores() }()
	return <-cores
}

// threadCores returns the cores that the calling thread may use.
func threadCores() []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	cores := make([]int, 0, set.Count())
	for c := 0; len(cores) < cap(cores); c++ {
		if set.IsSet(c) {
			cores = append(cores, c)
		}
	}
	return cores
}

// bindThread binds the calling thread to a core.
func bindThread(core int) bool {
	var set unix.CPUSet
	set.Set(core)
	return unix.SchedSetaffinity(0, &set) == nil
}
