//go:build !linux || portable

package blackbox

// AllowedCores returns the cores that this process may use, in ascending order, or nil if
// unknown: on systems other than Linux, and on machines with more than 1024 cores.
func AllowedCores() []int { return nil }

func bindThread(int) bool { return false }
