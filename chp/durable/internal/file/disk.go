// Package file changes files so that a crash leaves the old ones or the new ones: it flushes
// them and the directories with their names, replaces their content, makes new ones under
// another name first, and tells what the errors of the system mean for a log.
package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"clustermap/chp/commit"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// Disk flushes files. Tests replace it to make a flush fail, and to record the flushes.
type Disk struct {
	Data func(*os.File) error // flushes the data and size of a file
	Dir  func(*os.File) error // flushes the names in a directory
}

// Real is the disk of the system.
var Real = Disk{Data: fileutil.Fdatasync, Dir: fileutil.Fsync}

// A Directory is one whose names are flushed. From the first flush on it is open, since the
// process may have no descriptor left when a name must be flushed.
type Directory struct {
	Path string
	f    *os.File
}

// Flush flushes the names.
func (d *Directory) Flush(disk Disk) (err error) {
	if d.f == nil {
		if d.f, err = fileutil.OpenDir(d.Path); err != nil {
			d.f = nil
			return err
		}
	}
	return disk.Dir(d.f)
}

// Close closes the directory. A later Flush opens it again.
func (d *Directory) Close() {
	if d.f != nil {
		d.f.Close()
		d.f = nil
	}
}

// FlushDir flushes the names in a directory once.
func (d Disk) FlushDir(path string) error {
	one := Directory{Path: path}
	defer one.Close()
	return one.Flush(d)
}

// Classify wraps a system error with the corresponding error of package commit, if
// there is one.
func Classify(err error) error {
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

// Scarce reports whether an error says that something has run out that can be there again:
// space, or descriptors, which other parts of the program use up, too.
func Scarce(err error) bool {
	return errors.Is(Classify(err), commit.ErrFull) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// CannotRead marks an error of reading, unless the file does not exist.
func CannotRead(err error) error {
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w: %w", commit.ErrUnreadable, err)
}

// ReplaceFile atomically replaces the content of a file, and flushes it.
func (d Disk) ReplaceFile(dir *Directory, name string, content []byte) error {
	s := Spare{Disk: d, Dir: dir, Name: name}
	return s.Replace(content)
}

// A Spare is the file that is to replace another one. If it is prepared, it has its space and
// its descriptor: when it is needed there may be none left.
type Spare struct {
	Disk Disk
	Dir  *Directory
	Name string // of the file that it replaces
	f    *os.File
}

func (s *Spare) path() string { return filepath.Join(s.Dir.Path, s.Name+".tmp") }

// Prepare makes the file, with space for a content of some bytes, unless it is there.
func (s *Spare) Prepare(size int) (err error) {
	if s.f != nil {
		return nil
	}
	f, err := os.OpenFile(s.path(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	s.f = f
	if _, err = f.Write(make([]byte, size)); err != nil {
		s.Close()
	}
	return err
}

// Replace atomically gives the other file a content, of the size for which this one was prepared,
// and flushes it. Afterwards this one is no longer prepared.
func (s *Spare) Replace(content []byte) error {
	if err := s.Prepare(len(content)); err != nil {
		return err
	}
	_, err := s.f.WriteAt(content, 0)
	if err == nil {
		err = s.Disk.Data(s.f)
	}
	err = errors.Join(err, s.f.Close())
	s.f = nil
	if err == nil {
		err = os.Rename(s.path(), filepath.Join(s.Dir.Path, s.Name))
	}
	if err != nil {
		os.Remove(s.path())
		return err
	}
	return s.Dir.Flush(s.Disk)
}

// Close removes the file, if it is prepared, and if it has its name still.
func (s *Spare) Close() {
	if s.f == nil {
		return
	}
	mine := IsFile(s.f, s.path())
	s.f.Close() // first: Windows removes no open file
	s.f = nil
	if mine {
		os.Remove(s.path())
	}
}
