package durable

import (
	"clustermap/chp/durable/internal/file"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"clustermap/chp/commit"
)

// A source is the set of files of a log at one moment, open for reading. Files that are
// removed or created later make no difference.
type source struct {
	meta       Meta
	end        mark
	checkpoint *archive // nil without one
	segments   []segment
	files      map[string]*os.File // of the segments
}

// openSource opens the files of the whole log. It takes no lock.
func openSource(dir string) (_ *source, err error) {
	s := &source{files: map[string]*os.File{}}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.meta, err = readLogMeta(dir); err != nil {
		return nil, err
	}
	// First, because a process that appends makes the log longer than the mark.
	if s.end, err = readMark(dir, s.meta.Identity); err != nil {
		return nil, err
	}
	indexes, err := checkpoints(dir)
	if err != nil {
		return nil, err
	}
	start := uint64(0)
	if len(indexes) > 0 {
		path := filepath.Join(dir, checkpointName(indexes[len(indexes)-1]))
		if s.checkpoint, err = openCheckpoint(path, s.meta.Identity); err != nil {
			return nil, err
		}
		start = s.checkpoint.info.Index
	}
	if err := s.end.found(dir, start); err != nil {
		return nil, err
	}
	logs := filepath.Join(dir, logName)
	all, err := segments(logs)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(all) == 0 {
		return nil, noSegments(logs, start)
	}
	if err != nil {
		return nil, err
	}
	s.segments = from(all, start)
	if first := s.segments[0].first(); first > start+1 {
		return nil, beginsLate(s.segments[0].path, start, first)
	}
	for _, segment := range s.segments {
		f, err := openSegment(segment.path)
		if errors.Is(file.Classify(err), commit.ErrReadOnly) {
			f, err = os.Open(segment.path)
		}
		if err != nil {
			return nil, file.CannotRead(err)
		}
		s.files[segment.path] = f
	}
	return s, nil
}

// readLogMeta reads the metadata of a log that may be damaged. The error is fs.ErrNotExist if
// there is no log.
func readLogMeta(dir string) (Meta, error) {
	meta, err := readMeta(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return meta, err
	}
	if _, err := os.Stat(filepath.Join(dir, restoreName)); err == nil {
		return meta, errUnfinished
	}
	if err := neverComplete(dir); err != nil {
		return meta, err
	}
	return meta, fmt.Errorf("there is no log: %w", fs.ErrNotExist)
}

// read calls fn with all readable entries: those of the checkpoint and those after it.
func (s *source) read(fn func(commit.Entry) error) error {
	start := uint64(0)
	if s.checkpoint != nil {
		start = s.checkpoint.info.Index
		if err := s.checkpoint.state(fn); err != nil {
			return err
		}
	}
	w := walk{segments: s.segments, meta: &s.meta, open: func(path string) (*os.File, error) { return s.files[path], nil }}
	err := w.run(func(e commit.Entry, _ int64) error {
		if e.Index <= start {
			return nil
		}
		return fn(e)
	})
	if err == nil {
		_, err = w.judge(start, s.end)
	}
	return err
}

func (s *source) flush(disk file.Disk) error {
	for _, segment := range s.segments {
		if err := disk.Data(s.files[segment.path]); err != nil {
			return fmt.Errorf("flush: %w", file.Classify(err))
		}
	}
	return nil
}

func (s *source) close() {
	if s.checkpoint != nil {
		s.checkpoint.file.Close()
	}
	for _, f := range s.files {
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
