//go:build unix

package command

import (
	"io/fs"
	"os"
	"syscall"
)

// owns reports whether a file belongs to the user of this process.
func owns(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
