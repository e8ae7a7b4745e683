package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"clustermap/chp/commit"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// disk flushes files. Tests replace it to make a flush fail, and to record the flushes.
type disk struct {
	data func(*os.File) error // flushes the data and size of a file
	dir  func(*os.File) error // flushes the names in a directory
}

var realDisk = disk{data: fileutil.Fdatasync, dir: fileutil.Fsync}

// A directory is one whose names are flushed. From the first flush on it is open, since the
// process may have no descriptor left when a name must be flushed.
type directory struct {
	path string
	f    *os.File
}

func (d *directory) flush(disk disk) (err error) {
	if d.f == nil {
		if d.f, err = fileutil.OpenDir(d.path); err != nil {
			d.f = nil
			return err
		}
	}
	return disk.dir(d.f)
}

func (d *directory) close() {
	if d.f != nil {
		d.f.Close()
		d.f = nil
	}
}

// flushDir flushes the names in a directory once.
func (d disk) flushDir(path string) error {
	one := directory{path: path}
	defer one.close()
	return one.flush(d)
}

// classify wraps a system error with the corresponding error of package commit, if
// there is one.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, commit.ErrUnreadable):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", commit.ErrFull, err)
	case errors.Is(err, syscall.EROFS), errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: %w", commit.ErrReadOnly, err)
	}
	return err
}

// scarce reports whether an error says that something has run out that can be there again:
// space, or descriptors, which other parts of the program use up, too.
func scarce(err error) bool {
	return errors.Is(classify(err), commit.ErrFull) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// cannotRead marks an error of reading, unless the file does not exist.
func cannotRead(err error) error {
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w: %w", commit.ErrUnreadable, err)
}

// located adds a place to damage that the function of a reader has found in an entry.
func located(err error, file string, offset int64, lastGood uint64) error {
	var corrupt *commit.CorruptError
	if errors.As(err, &corrupt) && corrupt.File == "" {
		corrupt.File, corrupt.Offset, corrupt.LastGood = file, offset, lastGood
	}
	return err
}

// replaceFile atomically replaces the content of a file, and flushes it.
func (d disk) replaceFile(dir *directory, name string, content []byte) error {
	path := filepath.Join(dir.path, name)
	temporary := path + ".tmp"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = d.data(f)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		os.Remove(temporary)
		return err
	}
	return dir.flush(d)
}
