//go:build unix

package file

import (
	"os"
	"syscall"
)

// Unlinked reports whether an open file seems to have no name any more. It does not allocate.
func Unlinked(f *os.File) bool {
	var st syscall.Stat_t
	return syscall.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 0
}
