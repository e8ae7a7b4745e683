// Package symlink finds where a symbolic link leads, for programs that replace a file by
// renaming another: the link that somebody has put there stays.
package symlink

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Target returns the name of the file that a symbolic link leads to, whether or not that
// exists. It returns the name of anything else, or of nothing, as it is.
func Target(name string) (string, error) {
	const most = 40 // as in Linux
	for range most {
		info, err := os.Lstat(name)
		if err != nil || info.Mode().Type() != fs.ModeSymlink {
			return name, nil // who uses the name finds other errors
		}
		to, err := os.Readlink(name)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(name), to)
		}
		name = to
	}
	return "", &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
}
