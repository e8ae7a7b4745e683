package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// A file that is being written has the name of the finished one with a number and
// unfinishedSuffix behind it, and is locked: so the file of a process that was killed
// can be told from one that is still being written.
const unfinishedSuffix = ".tmp"

// createUnfinished creates the file that is to be renamed to path, readable by its owner
// only, and removes those that killed processes have left.
func createUnfinished(path string) (*os.File, error) {
	sweepUnfinished(path)
	for {
		name := fmt.Sprintf("%s.%d%s", path, rand.Uint32(), unfinishedSuffix)
		locked, err := fileutil.TryLockFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		switch {
		case errors.Is(err, fs.ErrExist), errors.Is(err, fileutil.ErrLocked): // or another process is just removing it
			continue
		case err != nil:
			// Perhaps this file system has no locks. Then such files stay.
			_ = os.Remove(name)
			return os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*-unlocked"+unfinishedSuffix)
		}
		if isFile(locked.File, name) {
			return locked.File, nil
		}
		_ = locked.Close() // another process removed it before it was locked
	}
}

// sweepUnfinished removes the unfinished files for path that no process is writing.
func sweepUnfinished(path string) {
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return
	}
	for _, e := range list {
		number, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		number, is := strings.CutSuffix(number, unfinishedSuffix)
		if !ok || !is || number == "" || strings.Trim(number, "0123456789") != "" || !e.Type().IsRegular() {
			continue
		}
		name := filepath.Join(filepath.Dir(path), e.Name())
		if locked, err := fileutil.TryLockFile(name, os.O_RDWR, 0o600); err == nil {
			_ = os.Remove(name)
			_ = locked.Close()
		}
	}
}

// isFile says whether a name is that of an open file.
func isFile(f *os.File, name string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(name)
	return err == nil && os.SameFile(opened, named)
}
