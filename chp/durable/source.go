package durable

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
	"clustermap/chp/durable/internal/segment"
)

// A source is what a directory has of a log. The checkpoint is open from the beginning, the
// segments once they are held: files that are removed or created later make no difference.
type source struct {
	dir        string
	meta       format.Meta
	end        format.Mark
	checkpoint *format.Archive   // nil without one
	start      uint64            // its index
	needless   []segment.Segment // all their entries are in the checkpoint
	walk       segment.Walk      // of the others
	held       map[string]*os.File
	anew       bool // the log ends before the checkpoint, and is to begin anew behind it: see Log.restart
}

// look reads the metadata and the mark of a log. It takes no lock.
func look(dir string) (*source, error) {
	s := &source{dir: dir}
	var err error
	if s.meta, err = readLogMeta(dir); err == nil {
		// First, because a process that appends makes the log longer than the mark.
		s.end, err = format.ReadMark(dir, s.meta.Identity)
	}
	return s, err
}

// state opens the checkpoint, if there is one.
func (s *source) state() error {
	indexes, err := format.Checkpoints(s.dir)
	if err != nil {
		return err
	}
	if n := len(indexes); n > 0 {
		path := filepath.Join(s.dir, format.CheckpointName(indexes[n-1]))
		if s.checkpoint, err = format.OpenCheckpoint(path, s.meta.Identity); err != nil {
			return err
		}
		s.start = s.checkpoint.Info.Index
	}
	return s.end.Found(s.dir, s.start)
}

// list finds the segments behind the checkpoint. It returns an error if there are none, or none
// for the first entries there.
func (s *source) list() error {
	logs := filepath.Join(s.dir, format.LogName)
	all, err := segment.List(logs)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(all) == 0 {
		return &commit.CorruptError{File: logs, LastGood: s.start, Reason: errors.New("no segments")}
	}
	if err != nil {
		return err
	}
	needed := segment.Behind(all, s.start)
	s.needless, s.walk = all[:len(all)-len(needed)], segment.Walk{Segments: needed, Meta: &s.meta}
	if first := needed[0].First(); first > s.start+1 {
		return &commit.CorruptError{File: needed[0].Path, LastGood: s.start, Reason: fmt.Errorf("the log begins with entry %d", first)}
	}
	return nil
}

// hold opens the segments.
func (s *source) hold() error {
	s.held = map[string]*os.File{}
	for _, part := range s.walk.Segments {
		f, err := segment.Open(part.Path)
		if errors.Is(file.Classify(err), commit.ErrReadOnly) {
			f, err = os.Open(part.Path)
		}
		if err != nil {
			return file.CannotRead(err)
		}
		s.held[part.Path] = f
	}
	s.walk.Open = func(path string) (*os.File, error) { return s.held[path], nil }
	return nil
}

// entries calls fn with all readable entries behind the checkpoint.
func (s *source) entries(fn func(commit.Entry) error) error {
	return s.walk.Run(func(e commit.Entry, _ int64) error {
		if e.Index <= s.start {
			return nil
		}
		return fn(e)
	})
}

// check tells a torn end from damage, once the entries are read.
func (s *source) check() (*commit.Torn, error) {
	s.anew = s.walk.Last < s.start && max(s.walk.Vouched, s.end.Last) <= s.walk.Last
	if s.anew {
		return s.walk.Check(s.walk.Last, s.end)
	}
	return s.walk.Check(s.start, s.end)
}

// openSource opens the files of the whole log.
func openSource(dir string) (*source, error) {
	s, err := look(dir)
	for _, step := range []func() error{s.state, s.list, s.hold} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		s.close()
	}
	return s, err
}

var errUnfinished = errors.New("a restore was interrupted; run it again")

// readLogMeta reads the metadata of a log that may be damaged. The error is fs.ErrNotExist if
// there is no log.
func readLogMeta(dir string) (format.Meta, error) {
	meta, err := format.ReadMeta(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return meta, err
	}
	if _, err := os.Stat(filepath.Join(dir, format.RestoreName)); err == nil {
		return meta, errUnfinished
	}
	if err := neverComplete(dir); err != nil {
		return meta, err
	}
	return meta, fmt.Errorf("there is no log: %w", fs.ErrNotExist)
}

// neverComplete returns an error if a directory without metadata has more than a creation
// leaves that was interrupted: a part of a log, or files that are not a log's. create removes
// what there is.
func neverComplete(dir string) error {
	indexes, err := format.Checkpoints(dir)
	if err != nil {
		return err
	}
	_, err = os.Lstat(filepath.Join(dir, format.EndName))
	if len(indexes) > 0 || !errors.Is(err, os.ErrNotExist) {
		return noMeta(dir)
	}
	logs := filepath.Join(dir, format.LogName)
	all, err := os.ReadDir(logs)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return file.CannotRead(err)
	}
	found, err := segment.List(logs)
	if err != nil {
		return err
	}
	for _, d := range all {
		path := filepath.Join(logs, d.Name())
		switch {
		case len(found) > 1:
			return noMeta(dir)
		case len(found) == 1 && found[0].Path == path:
			if some, err := segment.HasEntries(path); err != nil || some {
				return cmp.Or(err, noMeta(dir))
			}
		case !d.Type().IsRegular() || filepath.Ext(path) != ".tmp":
			return fmt.Errorf("%s is not a log's file; the log needs a directory of its own", path)
		}
	}
	return nil
}

func noMeta(dir string) error {
	return &commit.CorruptError{File: filepath.Join(dir, format.MetaName), Reason: errors.New("it is missing although there is a part of a log")}
}

// read calls fn with all readable entries: those of the checkpoint and those after it.
func (s *source) read(fn func(commit.Entry) error) (torn *commit.Torn, err error) {
	if s.checkpoint != nil {
		err = s.checkpoint.State(fn)
	}
	if err == nil {
		err = s.entries(fn)
	}
	if err == nil {
		torn, err = s.check()
	}
	return torn, err
}

func (s *source) flush(disk file.Disk) error {
	for _, part := range s.walk.Segments {
		if err := disk.Data(s.held[part.Path]); err != nil {
			return fmt.Errorf("flush: %w", file.Classify(err))
		}
	}
	return nil
}

func (s *source) close() {
	if s.checkpoint != nil {
		s.checkpoint.Close()
	}
	for _, f := range s.held {
		f.Close()
	}
}

// steady calls f, which reads a log, until it finds no defect, or the same one twice.
// Another process may write to the log meanwhile: a write in progress can look like
// damage, and a checkpoint removes files that it replaces.
func steady(f func() error) error {
	var before error
	for attempt := 0; ; attempt++ {
		err := f()
		if sameDefect(err, before) || attempt == 9 {
			return err
		}
		before = err
		time.Sleep(20 * time.Millisecond)
	}
}

// sameDefect reports whether two errors are the same defect, or err is not a defect
// that can disappear.
func sameDefect(err, before error) bool {
	var corrupt, other *commit.CorruptError
	switch {
	case errors.As(err, &corrupt):
		return errors.As(before, &other) && corrupt.File == other.File && corrupt.Offset == other.Offset
	case errors.Is(err, fs.ErrNotExist):
		return before != nil && before.Error() == err.Error()
	}
	return true
}
