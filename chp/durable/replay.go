package durable

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
)

// Replay reads all entries and makes the log ready for writing. It can be called
// once; see [commit.Log].
func (l *Log) Replay(fn func(commit.Entry) error) (commit.Replayed, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := l.replay(fn)
	if err != nil {
		err = fmt.Errorf("log %s: %w", l.dir, file.Classify(err))
	}
	return r, err
}

func (l *Log) replay(fn func(commit.Entry) error) (r commit.Replayed, err error) {
	s := l.found
	switch {
	case l.closed:
		return r, commit.ErrClosed
	case l.err != nil:
		return r, l.err
	case s == nil:
		return r, errors.New("the log was already replayed")
	}
	l.found = nil
	defer s.close()
	if c := s.checkpoint; c != nil {
		r.Checkpoint, r.Sequence = c.Info.Index, c.Info.Sequence
		err = c.State(fn)
		r.Entries, r.Records = c.Entries, c.Records
	}
	if err == nil {
		err = s.list()
	}
	if err == nil {
		err = s.late()
	}
	if err == nil {
		err = s.entries(func(e commit.Entry) error {
			r.Entries++
			r.Records += uint64(e.Count)
			return fn(e)
		})
	}
	if err == nil {
		r.Torn, err = s.judge()
	}
	if err != nil {
		return r, err
	}
	w := &s.walk
	r.Last, r.Committed = w.last, max(w.vouched, l.checkpoint.Index)

	// Nothing on disk has changed up to here.
	if r.Torn != nil {
		if err := l.truncate(w.segments, w.at, w.offset, w.headed); err != nil {
			return r, err
		}
		if r.Torn.Bytes == 0 {
			r.Torn = nil // an empty segment
		}
	}
	if err := l.tidy(s.needless); err != nil {
		return r, err
	}
	renewed, err := l.renew(w, s.end)
	if err != nil {
		return r, err
	}
	l.first, l.last, l.committed = w.segments[0].first(), w.last, r.Committed
	if err := l.openTail(renewed); err != nil {
		return r, l.fail(err)
	}
	// These also show that files can be created in both directories: what cannot be written
	// later must not be ready now. Room for the next segment may come until it is needed.
	err = l.end.Open(&l.dirNames, l.meta.Identity, format.Mark{Last: l.last, Checkpoint: l.checkpoint.Index, Segment: l.w.seq, Offset: l.w.end})
	if err == nil {
		if <-l.w.next.done; !errors.Is(file.Classify(l.w.next.err), commit.ErrFull) {
			err = l.w.next.err
		}
	}
	if err != nil {
		return r, l.fail(err)
	}
	return r, nil
}

// tidy removes the leftovers of a crash: unfinished files, a replaced checkpoint, and
// segments that a checkpoint replaces.
func (l *Log) tidy(needless []segment) error {
	var paths []string
	for _, s := range needless {
		paths = append(paths, s.path)
	}
	indexes, err := format.Checkpoints(l.dir)
	if err != nil {
		return err
	}
	for _, index := range indexes {
		if index < l.checkpoint.Index {
			paths = append(paths, filepath.Join(l.dir, format.CheckpointName(index)))
		}
	}
	found, err := os.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, d := range found {
		name, unfinished := strings.CutSuffix(d.Name(), ".tmp")
		_, checkpoint := format.CheckpointIndex(name)
		if unfinished && (checkpoint || name == format.MetaName || name == format.EndName) || d.Name() == format.RestoreName {
			paths = append(paths, filepath.Join(l.dir, d.Name()))
		}
	}
	paths = append(paths, filepath.Join(l.logs, nextName))
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// renew copies the segments with entries behind a mark to new files, which replace them. It
// returns the number of the first one.
//
// These entries are not known to be on the disk. After a flush that has failed, also in a process that was
// killed before it knew, the system's cache can have what the disk has not, and take it
// for written: then the next flush writes nothing, and succeeds. To write the same bytes to
// the same file again does not help. ext4 does write them, but if that failed at first,
// and the space was allocated in advance, the file has zeros there when the cache is gone.
func (l *Log) renew(w *walk, m format.Mark) (first uint64, err error) {
	first = math.MaxUint64
	for i, sum := range w.sums {
		s := &w.segments[i]
		if s.seq < m.Segment || s.seq == m.Segment && sum.bytes <= m.Offset || i == w.at && !w.headed {
			continue
		}
		if err := l.copySegment(s.path, sum.bytes); err != nil {
			return 0, err
		}
		first = min(first, s.seq)
	}
	return first, nil
}

// copySegment replaces a segment by a copy of its first bytes, which is flushed. Its name is
// not.
func (l *Log) copySegment(path string, size int64) error {
	if err := os.Truncate(path, size); err != nil { // there may be no other space for the copy
		return err
	}
	f, err := os.OpenFile(filepath.Join(l.logs, nextName), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err = copyInto(f, path, size); err == nil {
		err = l.disk.Data(f)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// copyInto copies the first bytes of a file.
func copyInto(f *os.File, path string, size int64) error {
	from, err := os.Open(path)
	if err != nil {
		return file.CannotRead(err)
	}
	defer from.Close()
	// Not by the system, which may let both files share what the disk has.
	_, err = io.CopyN(struct{ io.Writer }{f}, from, size)
	return err
}

// openTail opens the log for writing after l.last, and flushes all segments: a process
// that was killed may have left unflushed writes. It reads those from number first on
// again, at least the last one.
func (l *Log) openTail(first uint64) error {
	all, err := segments(l.logs)
	if err != nil {
		return err
	}
	tail := all[len(all)-1]
	again := all[len(all)-1:]
	for len(again) < len(all) && again[0].seq > first {
		again = all[len(all)-len(again)-1:]
	}
	w := walk{segments: again, meta: &l.meta}
	err = w.run(func(commit.Entry, int64) error { return nil })
	if err == nil && w.reason != nil {
		err = &commit.CorruptError{File: again[w.at].path, Offset: w.offset, LastGood: w.last, Reason: w.reason}
	}
	if err != nil {
		return err
	}
	for _, s := range all {
		f, err := openSegment(s.path)
		if err == nil {
			err = l.disk.Data(f)
			if s != tail || err != nil {
				err = errors.Join(err, f.Close())
			} else {
				l.unsynced = append(l.unsynced, f)
			}
		}
		if err != nil {
			return err
		}
	}
	if err := l.logNames.Flush(l.disk); err != nil {
		l.closeFiles()
		return err
	}
	l.w = newWriter(l.logs, segmentMetadata(&l.meta), l.unsynced[0], tail, w.offset, w.crc, l.last, l)
	l.synced, l.vouched, l.unnamed = l.last, 0, false
	return nil
}

// openSegment opens a segment for writing and flushing.
func openSegment(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR, 0) }
