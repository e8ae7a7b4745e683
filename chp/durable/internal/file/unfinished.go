package file

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

// A file that is being written has its final name plus a number and unfinishedSuffix,
// and is locked. The lock distinguishes it from a file of a process that was killed.
const unfinishedSuffix = ".tmp"

// CreateUnfinished creates the file that will be renamed to path, readable by its owner
// only, and removes unfinished files of processes that were killed.
func CreateUnfinished(path string) (*os.File, error) {
	sweepUnfinished(path)
	for {
		name := fmt.Sprintf("%s.%d%s", path, rand.Uint32(), unfinishedSuffix)
		locked, err := fileutil.TryLockFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		switch {
		case errors.Is(err, fs.ErrExist), errors.Is(err, fileutil.ErrLocked): // another process may be removing it
			continue
		case err != nil:
			// The file system may have no locks. Then unfinished files stay.
			_ = os.Remove(name)
			return os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*-unlocked"+unfinishedSuffix)
		}
		if IsFile(locked.File, name) {
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

// IsFile reports whether name is the name of an open file.
func IsFile(f *os.File, name string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(name)
	return err == nil && os.SameFile(opened, named)
}
