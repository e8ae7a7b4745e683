package durable

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
	"clustermap/chp/durable/internal/segment"
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
	r.Checkpoint, r.Sequence = s.start, l.checkpoint.Sequence
	if err := s.list(); err != nil {
		return r, err
	}
	r.Torn, err = s.read(func(e commit.Entry) error {
		r.Entries++
		r.Records += uint64(e.Count)
		return fn(e)
	})
	if err != nil {
		return r, err
	}
	w := &s.walk
	r.Last, r.Committed = w.Last, max(w.Vouched, l.checkpoint.Index)

	// Nothing on disk has changed up to here.
	if r.Torn != nil {
		if err := l.segments.Tear(w); err != nil {
			return r, err
		}
		if r.Torn.Bytes == 0 {
			r.Torn = nil // an empty segment
		}
	}
	if err := l.tidy(s.needless); err != nil {
		return r, err
	}
	renewed, err := l.segments.Renew(w, s.end)
	if err != nil {
		return r, err
	}
	l.first, l.last, l.committed = w.Segments[0].First(), w.Last, r.Committed
	if s.anew {
		if err := l.segments.Restart(&l.meta, s.start); err != nil {
			return r, err
		}
		l.first, l.last, r.Last, renewed = s.start+1, s.start, s.start, math.MaxUint64
	}
	if err := l.resume(renewed); err != nil {
		return r, l.fail(err)
	}
	// These also show that files can be created in both directories: what cannot be written
	// later must not be ready now. Room for the next segment may come until it is needed. It
	// is waited for first, since nothing else finds room while the system looks for its.
	<-l.w.Next.Done
	if err = l.w.Next.Err; err == nil || l.w.Next.Full() {
		err = l.end.Open(&l.dirNames, l.meta.Identity, l.mark())
	}
	if err == nil {
		err = l.nextMeta.Prepare(format.MetaBytes)
	}
	if err != nil {
		return r, l.fail(err)
	}
	return r, nil
}

// tidy removes the leftovers of a crash: unfinished files, a replaced checkpoint, and
// segments that a checkpoint replaces.
func (l *Log) tidy(needless []segment.Segment) error {
	var paths []string
	for _, s := range needless {
		paths = append(paths, s.Path)
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
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// resume continues to write behind the last entry.
func (l *Log) resume(first uint64) (err error) {
	if l.w, err = l.segments.Resume(&l.meta, first, l.owned); err == nil {
		l.synced = l.last
	}
	return err
}
