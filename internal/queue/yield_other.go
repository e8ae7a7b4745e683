//go:build !linux || portable

package queue

// yield does nothing on these systems.
func yield() {}
