package durable

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
	"clustermap/internal/symlink"
)

// ErrNotBackup means that a file is not a backup: it does not begin like one. It is
// wrapped, with the name of the file.
var ErrNotBackup = format.ErrNotBackup

// BackupInfo describes the content of a backup.
type BackupInfo struct {
	File       string
	Bytes      int64
	Time       time.Time // when the backup began
	Identity   [16]byte  // of the log; zero if the backup was not made from a log
	Epoch      uint64
	Checkpoint uint64 // index of the checkpoint at its start, 0 without one
	Last       uint64 // index of the last entry
	Sequence   uint64 // last sequence
	Entries    uint64
	Records    uint64 // updates in the entries
}

func (b *BackupInfo) note(e *commit.Entry) {
	if b.Last = e.Index; e.Index != b.Checkpoint && e.Count > 0 {
		b.Sequence = max(b.Sequence, lastSequence(e))
	}
	b.Entries++
	b.Records += uint64(e.Count)
}

// lastSequence returns the sequence of the last update of an entry with updates.
func lastSequence(e *commit.Entry) uint64 { return e.First + uint64(e.Count) - 1 }

// A BackupWriter writes a backup. Only one goroutine may use it. It is a
// [commit.Checkpoint]: Commit gives the file its name, and Abort removes the unfinished
// file.
type BackupWriter struct {
	path    string // without symbolic links
	disk    file.Disk
	f       *os.File
	content *format.ArchiveWriter
	info    BackupInfo
}

var _ commit.Checkpoint = (*BackupWriter)(nil)

// NewBackup begins a backup of a state that does not come from a log, but for example
// from a running server. sequence is the last one of that state. Append writes the
// state; it ignores the Index of entries.
//
// The file is written under another name beside path that ends in .tmp; such files of
// processes that were killed are removed first. Commit replaces a file at path. Where path
// is a symbolic link, all this is about the file that it leads to.
func NewBackup(path string, epoch, sequence uint64) (*BackupWriter, error) {
	b, err := newBackup(path, file.Real, BackupInfo{Epoch: epoch, Checkpoint: 1, Last: 1, Sequence: sequence})
	if err != nil {
		return nil, fmt.Errorf("backup: %w", file.Classify(err))
	}
	return b, nil
}

func newBackup(path string, disk file.Disk, info BackupInfo) (*BackupWriter, error) {
	target, err := symlink.Target(path)
	if err != nil {
		return nil, err
	}
	if st, err := os.Stat(target); err == nil && !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s exists and is not a regular file", path)
	}
	f, err := file.CreateUnfinished(target)
	if err != nil {
		return nil, err
	}
	info.File, info.Time = path, time.Now()
	return &BackupWriter{
		path: target, disk: disk, f: f, info: info,
		content: format.Backup.Write(f, info.Identity, format.Info{Index: info.Checkpoint, Epoch: info.Epoch, Sequence: info.Sequence, Time: info.Time}),
	}, nil
}

// Append writes one piece of the state.
func (b *BackupWriter) Append(e commit.Entry) error {
	e.Index = b.info.Checkpoint
	return b.append(e)
}

func (b *BackupWriter) append(e commit.Entry) error {
	if b.f == nil {
		return commit.ErrClosed
	}
	if err := b.content.Append(&e); err != nil {
		return fmt.Errorf("backup: %w", file.Classify(err))
	}
	b.info.note(&e)
	return nil
}

// Commit flushes the file and renames it to its final name. If it fails, the file is
// removed.
func (b *BackupWriter) Commit() error {
	if b.f == nil {
		return commit.ErrClosed
	}
	defer b.Abort()
	err := b.content.Finish()
	if err == nil {
		err = b.disk.Data(b.f)
	}
	if err == nil {
		var st os.FileInfo
		if st, err = b.f.Stat(); err == nil {
			b.info.Bytes = st.Size()
		}
	}
	if err == nil {
		temporary := b.f.Name()
		if runtime.GOOS == "windows" {
			// Windows cannot rename an open file. Elsewhere the file stays locked
			// until it has its name.
			err = b.f.Close()
		}
		if err == nil {
			err = os.Rename(temporary, b.path)
		}
		if err != nil {
			os.Remove(temporary)
		}
		if runtime.GOOS != "windows" {
			err = errors.Join(err, b.f.Close())
		}
		b.f = nil
		if err == nil {
			err = b.disk.FlushDir(filepath.Dir(b.path))
		}
	}
	if err != nil {
		return fmt.Errorf("backup: %w", file.Classify(err))
	}
	return nil
}

// Abort removes an unfinished backup. After Commit it does nothing.
func (b *BackupWriter) Abort() {
	if b.f == nil {
		return
	}
	b.f.Close()
	os.Remove(b.f.Name())
	b.f = nil
}

// Info describes the backup as far as it is written.
func (b *BackupWriter) Info() BackupInfo { return b.info }

// Backup copies the log in a directory to a file: the checkpoint and the entries after
// it. It changes nothing in the directory and takes no lock, so a process may have the
// log open and append to it. It copies the entries that were written when it began, and
// flushes the log's files before it ends: the backup has no entry that its log could
// still lose.
//
// The file is written under another name beside path that ends in .tmp, and finally
// replaces path; see [NewBackup].
//
// Damage is a [*commit.CorruptError]; then there is no backup. An unfinished write at
// the end of the log is omitted.
//
// The functions in done, if there are some, are called with the number of bytes of each entry
// that was copied; if Backup begins again because the log has changed, with those of all entries again.
func Backup(ctx context.Context, dir, path string, done ...func(bytes int)) (BackupInfo, error) {
	var info BackupInfo
	err := steady(func() (err error) {
		info, err = backup(ctx, dir, path, file.Real, done...)
		return err
	})
	if err != nil {
		return BackupInfo{}, fmt.Errorf("log %s: %w", dir, err)
	}
	return info, nil
}

func backup(ctx context.Context, dir, path string, disk file.Disk, done ...func(bytes int)) (BackupInfo, error) {
	s, err := openSource(dir)
	if err != nil {
		return BackupInfo{}, err
	}
	defer s.close()
	info := BackupInfo{Identity: s.meta.Identity, Epoch: s.meta.Epoch}
	if s.checkpoint != nil {
		info.Checkpoint, info.Last, info.Sequence = s.checkpoint.Info.Index, s.checkpoint.Info.Index, s.checkpoint.Info.Sequence
	}
	b, err := newBackup(path, disk, info)
	if err != nil {
		return BackupInfo{}, file.Classify(err)
	}
	defer b.Abort()
	_, err = s.read(func(e commit.Entry) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		tell(done, &e)
		return b.append(e)
	})
	if err == nil {
		err = s.flush(disk)
	}
	if err == nil {
		err = b.Commit()
	}
	return b.info, err
}

func tell(done []func(bytes int), e *commit.Entry) {
	for _, f := range done {
		f(len(e.Records))
	}
}

// ReadBackup calls fn with all entries of a backup and verifies them. Damage is a
// [*commit.CorruptError], and a file of another kind [ErrNotBackup]; errors of fn are
// returned unchanged.
func ReadBackup(path string, fn func(commit.Entry) error) (BackupInfo, error) {
	a, err := format.Backup.Open(path)
	if err != nil {
		return BackupInfo{}, err
	}
	defer a.Close()
	info := BackupInfo{
		File: path, Bytes: a.Info.Bytes, Time: a.Info.Time, Identity: a.Identity,
		Epoch: a.Info.Epoch, Checkpoint: a.Info.Index, Last: a.Info.Index, Sequence: a.Info.Sequence,
	}
	err = a.Read(func(e commit.Entry) error {
		if e.Index != info.Last+1 && (e.Index != info.Last || e.Index != info.Checkpoint) {
			return &commit.CorruptError{File: path, LastGood: info.Last, Reason: fmt.Errorf("entry %d, want %d", e.Index, info.Last+1)}
		}
		info.note(&e)
		return fn(e)
	})
	return info, err
}

// Restore creates a log in a directory from a backup. It creates the directory if it
// does not exist. If the directory has a log, the error is [os.ErrExist] and nothing
// changes.
//
// The new log has its own identity and the epoch of the backup. Its entries are those
// of the backup with new indexes, without those that are about a cluster
// ([commit.Entry.OfCluster]): the backup of a node becomes the log of a server without
// a cluster, or of the first node of a new one. If Restore is interrupted, there is no log in the
// directory, and Restore can be called again.
//
// The functions in done, if there are some, are called with the number of bytes of each entry.
func Restore(ctx context.Context, path, dir string, done ...func(bytes int)) (BackupInfo, error) {
	info, err := restore(ctx, path, dir, file.Real, done...)
	if err != nil {
		return BackupInfo{}, fmt.Errorf("log %s: %w", dir, file.Classify(err))
	}
	return info, nil
}

func restore(ctx context.Context, path, dir string, disk file.Disk, done ...func(bytes int)) (info BackupInfo, err error) {
	// Check the file before creating a directory.
	a, err := format.Backup.Open(path)
	if err != nil {
		return info, err
	}
	epoch, index, sequence := a.Info.Epoch, a.Info.Index, a.Info.Sequence
	if err := a.Close(); err != nil {
		return info, err
	}

	created := false
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		created = true
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return info, err
		}
	}
	lock, err := lockDir(dir)
	if err != nil {
		return info, err
	}
	defer lock.Close()
	work := filepath.Join(dir, format.RestoreName)
	if err := makeRoom(dir, work); err != nil {
		return info, err
	}
	defer func() {
		if err != nil {
			makeRoom(dir, work)
			if created {
				os.RemoveAll(dir)
			}
		}
	}()

	l, err := open(work, Options{}, disk)
	if err != nil {
		return info, err
	}
	defer l.Close()
	if _, err := l.Replay(func(commit.Entry) error { return nil }); err != nil {
		return info, err
	}
	if err := l.SetEpoch(epoch); err != nil {
		return info, err
	}
	var state commit.Checkpoint // until it is complete
	if index > 0 {
		// A checkpoint replaces an entry, so the log needs one.
		if err := l.Append(commit.Entry{Index: 1, Epoch: epoch}); err != nil {
			return info, err
		}
		if state, err = l.Checkpoint(1, sequence); err != nil {
			return info, err
		}
		defer func() {
			if state != nil {
				state.Abort()
			}
		}()
	}
	finish := func() (err error) {
		if state != nil {
			err = state.Commit()
			state = nil
		}
		return err
	}
	info, err = ReadBackup(path, func(e commit.Entry) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		tell(done, &e)
		if e.OfCluster() {
			return nil
		}
		if index > 0 && e.Index == index {
			return state.Append(e)
		}
		if err := finish(); err != nil {
			return err
		}
		e.Index = l.Last() + 1
		return l.Append(e)
	})
	if err == nil {
		err = finish()
	}
	if err == nil {
		err = l.Sync()
	}
	if err != nil {
		return info, err
	}
	l.Commit(l.Last())
	if err := l.Close(); err != nil {
		return info, err
	}
	return info, install(work, dir, disk)
}

// makeRoom returns an error if a directory contains a log, and removes the files that an
// interrupted restore has left.
func makeRoom(dir, work string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	unfinished := false
	var parts []string
	for _, d := range entries {
		name := d.Name()
		_, checkpoint := format.CheckpointIndex(name)
		switch {
		case name == format.MetaName:
			return hasLog("the directory already has a log")
		case name == format.RestoreName:
			unfinished = true
		case name == format.LogName, name == format.EndName, checkpoint:
			parts = append(parts, filepath.Join(dir, name))
		}
	}
	if len(parts) > 0 && !unfinished {
		return hasLog("the directory already has parts of a log")
	}
	for _, path := range append(parts, work) {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// hasLog describes why a directory is not free for a log. It matches fs.ErrExist.
type hasLog string

func (e hasLog) Error() string { return string(e) }

// Is reports whether target is fs.ErrExist.
func (e hasLog) Is(target error) bool { return target == fs.ErrExist }

// install moves a complete log from one directory to another. It moves the metadata
// last: they mark the log as complete.
func install(from, to string, disk file.Disk) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, d := range entries {
		name := d.Name()
		if _, checkpoint := format.CheckpointIndex(name); checkpoint || name == format.LogName || name == format.EndName {
			if err := os.Rename(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
				return err
			}
		}
	}
	if err := disk.FlushDir(to); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(from, format.MetaName), filepath.Join(to, format.MetaName)); err != nil {
		return err
	}
	if err := disk.FlushDir(to); err != nil {
		return err
	}
	if err := os.RemoveAll(from); err != nil {
		return err
	}
	return disk.FlushDir(filepath.Dir(filepath.Clean(to)))
}
