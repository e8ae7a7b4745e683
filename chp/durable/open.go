package durable

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
	"clustermap/chp/durable/internal/segment"
)

// Options are the settings of a log.
type Options struct {
	// NoCreate makes Open return an error that is [os.ErrNotExist] if there is
	// no log in the directory.
	NoCreate bool
}

// Open opens the log in a directory, and creates both if they do not exist. It
// locks the directory: until Close, another Open fails with [commit.ErrLocked].
// Replay must be called before the first append; chp.NewServer does that for its log.
//
// Other errors are [commit.ErrReadOnly], [commit.ErrFull], [commit.ErrFormat] and
// [*commit.CorruptError].
func Open(dir string, options Options) (*Log, error) {
	return open(dir, options, file.Real)
}

func open(dir string, options Options, disk file.Disk) (_ *Log, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("log %s: %w", dir, file.Classify(err))
		}
	}()
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		if options.NoCreate {
			return nil, err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		if err := disk.FlushDir(filepath.Dir(filepath.Clean(dir))); err != nil {
			return nil, err
		}
	}
	if options.NoCreate {
		if _, err := os.Stat(filepath.Join(dir, format.MetaName)); err != nil {
			return nil, err
		}
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	l := &Log{
		dir: dir, disk: disk, lock: lock, dirNames: file.Directory{Path: dir}, end: format.MarkFile{Disk: disk},
		segments: segment.Dir{Disk: disk, Names: file.Directory{Path: filepath.Join(dir, format.LogName)}},
	}
	l.nextMeta = file.Spare{Disk: disk, Dir: &l.dirNames, Name: format.MetaName}
	if err := l.open(); err != nil {
		l.dirNames.Close()
		lock.Close()
		return nil, err
	}
	return l, nil
}

// lockDir locks a directory for this process. It tries again for a while if it is locked.
func lockDir(dir string) (lock *fileutil.LockedFile, err error) {
	for end := time.Now().Add(lockPatience); ; time.Sleep(time.Millisecond) {
		lock, err = fileutil.TryLockFile(filepath.Join(dir, format.LockName), os.O_RDWR|os.O_CREATE, 0o600)
		if !errors.Is(err, fileutil.ErrLocked) {
			return lock, err
		}
		if time.Now().After(end) {
			return nil, commit.ErrLocked
		}
	}
}

// open finds the log, or creates an empty one if there is none.
func (l *Log) open() error {
	s, err := look(l.dir)
	if errors.Is(err, os.ErrNotExist) {
		if err = l.create(); err == nil {
			s, err = look(l.dir)
		}
	}
	if err == nil {
		err = s.state()
	}
	if err != nil {
		s.close()
		return err
	}
	l.found, l.meta = s, s.meta
	if s.checkpoint != nil {
		l.checkpoint = CheckpointInfo(s.checkpoint.Info)
	}
	return nil
}

// create creates an empty log in a directory that has none. It writes the metadata last: they
// mark the log as complete.
func (l *Log) create() error {
	m := format.Meta{Format: format.Version}
	rand.Read(m.Identity[:])
	var token [8]byte
	rand.Read(token[:])
	m.Token = binary.BigEndian.Uint64(token[:])
	err := emptyDir(l.segments.Names.Path)
	if err == nil {
		err = l.segments.Create(&m)
	}
	if err == nil {
		err = l.dirNames.Flush(l.disk)
	}
	if err == nil {
		err = l.disk.ReplaceFile(&l.dirNames, format.MetaName, m.Encode())
	}
	return err
}

// emptyDir creates a directory, or removes what an interrupted creation has left there. The
// directory can be a link to another file system.
func emptyDir(path string) error {
	err := os.Mkdir(path, 0o700)
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	left, err := os.ReadDir(path)
	for _, d := range left {
		err = errors.Join(err, os.Remove(filepath.Join(path, d.Name())))
	}
	return err
}
