package durable

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"clustermap/chp/commit"
)

// disk flushes files. Tests replace it to make a flush fail, and to record the flushes.
type disk struct {
	data func(*os.File) error // flushes the data and size of a file
	dir  func(string) error   // flushes the names in a directory
}

var realDisk = disk{data: fileutil.Fdatasync, dir: syncDir}

func syncDir(path string) error {
	d, err := fileutil.OpenDir(path)
	if err != nil {
		return err
	}
	err = fileutil.Fsync(d)
	return errors.Join(err, d.Close())
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

// replaceFile atomically replaces the content of the file path, and flushes it.
func (d disk) replaceFile(dir, path string, content []byte) error {
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
	return d.dir(dir)
}
