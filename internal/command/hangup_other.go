//go:build !unix

package command

// waitHangup returns false: only the next write notices.
func waitHangup(int) bool { return false }
