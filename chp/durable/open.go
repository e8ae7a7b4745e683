package durable

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"clustermap/chp/commit"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
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
	return open(dir, options, realDisk)
}

func open(dir string, options Options, disk disk) (_ *Log, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("log %s: %w", dir, classify(err))
		}
	}()
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		if options.NoCreate {
			return nil, err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		if err := disk.flushDir(filepath.Dir(filepath.Clean(dir))); err != nil {
			return nil, err
		}
	}
	if options.NoCreate {
		if _, err := os.Stat(filepath.Join(dir, metaName)); err != nil {
			return nil, err
		}
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	l := &Log{dir: dir, logs: filepath.Join(dir, logName), disk: disk, lock: lock}
	l.dirNames.path, l.logNames.path = l.dir, l.logs
	if err := l.open(); err != nil {
		l.dirNames.close()
		lock.Close()
		return nil, err
	}
	return l, nil
}

// lockPatience is how long to wait for a lock. It can outlive its owner for a moment: a
// child process that the owner started has a copy of the file until it calls exec.
const lockPatience = 100 * time.Millisecond

// lockDir locks a directory for this process.
func lockDir(dir string) (lock *fileutil.LockedFile, err error) {
	err = patiently(lockPatience, func() (err error) {
		lock, err = fileutil.TryLockFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
		return err
	})
	if errors.Is(err, fileutil.ErrLocked) {
		err = commit.ErrLocked
	}
	return lock, err
}

// patiently calls f again until it does not return ErrLocked or time is up.
func patiently(patience time.Duration, f func() error) error {
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if err := f(); !errors.Is(err, fileutil.ErrLocked) || time.Now().After(end) {
			return err
		}
	}
}

// open reads the metadata, or creates an empty log if there are none.
func (l *Log) open() error {
	meta, err := readMeta(l.dir)
	if errors.Is(err, os.ErrNotExist) {
		meta, err = l.create()
	}
	if err != nil {
		return err
	}
	l.meta = meta
	indexes, err := checkpoints(l.dir)
	if err != nil {
		return err
	}
	if len(indexes) > 0 {
		path := filepath.Join(l.dir, checkpointName(indexes[len(indexes)-1]))
		if l.checkpoint, err = readCheckpointHeader(path, meta.Identity); err != nil {
			return err
		}
	}
	m, err := readMark(l.dir, meta.Identity)
	if err == nil {
		err = m.found(l.dir, l.checkpoint.Index)
	}
	l.end = markFile{disk: l.disk, mark: m}
	return err
}

// create creates an empty log. It writes the metadata last: they mark the log as
// complete.
func (l *Log) create() (Meta, error) {
	if _, err := os.Stat(filepath.Join(l.dir, restoreName)); err == nil {
		return Meta{}, errUnfinished
	}
	if indexes, err := checkpoints(l.dir); err != nil || len(indexes) > 0 {
		return Meta{}, errors.Join(err, noMeta(l.dir))
	}
	found, err := segments(l.logs)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Meta{}, err
	}
	if len(found) > 1 {
		return Meta{}, noMeta(l.dir)
	}
	if len(found) == 1 {
		// A creation that was interrupted has left no entries.
		b, err := readFrom(found[0].path, 0)
		if err != nil {
			return Meta{}, err
		}
		if hasEntries(b) {
			return Meta{}, noMeta(l.dir)
		}
		if err := os.RemoveAll(l.logs); err != nil {
			return Meta{}, err
		}
	}
	m := Meta{Format: formatVersion}
	rand.Read(m.Identity[:])
	var token [8]byte
	rand.Read(token[:])
	m.token = binary.BigEndian.Uint64(token[:])
	w, err := wal.Create(zap.NewNop(), l.logs, segmentMetadata(&m))
	if err != nil {
		return Meta{}, err
	}
	if err := w.Close(); err != nil {
		return Meta{}, err
	}
	return m, l.disk.replaceFile(&l.dirNames, metaName, m.encode())
}

// hasEntries reports whether a new segment has more than a head.
func hasEntries(b []byte) bool {
	for {
		kind, _, _, n := parseFrame(append(b, make([]byte, 8)...))
		if n == 0 {
			return lastNonzero(b) >= 0
		}
		if kind == wal.EntryType {
			return true
		}
		b = b[min(n, len(b)):]
	}
}
