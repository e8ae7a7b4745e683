//go:build unix

package durable

import (
	"os"
	"syscall"
)

// unlinked reports whether an open file seems to have no name any more. It does not allocate.
func unlinked(f *os.File) bool {
	var st syscall.Stat_t
	return syscall.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 0
}
