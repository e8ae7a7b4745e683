package durable

import (
	"errors"
	"fmt"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/segment"
)

// Append writes entries; see [commit.Log]. It does not allocate, except when it begins a
// segment.
func (l *Log) Append(entries ...commit.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return err
	}
	for i := range entries {
		e := &entries[i]
		if want := l.last + 1 + uint64(i); e.Index != want {
			return fmt.Errorf("%w: entry %d, want %d", commit.ErrOrder, e.Index, want)
		}
		if n := e.RecordBytes(); n > MaxEntryBytes {
			return fmt.Errorf("%w: %d bytes, at most %d", commit.ErrTooLarge, n, MaxEntryBytes)
		}
	}
	for i := range entries {
		if err := l.w.Append(&entries[i]); err != nil {
			return l.fail(err)
		}
	}
	err := l.saveState()
	if err == nil {
		err = l.w.Flush()
	}
	if err == nil {
		l.last += uint64(len(entries))
		if l.w.Full() {
			err = l.w.Cut()
		}
	}
	if err != nil {
		return l.fail(err)
	}
	return nil
}

// GathersParts says that Append takes entries with Parts; see [commit.Gatherer].
func (l *Log) GathersParts() {}

// Reserve returns how many bytes can be appended; see [commit.Reserver]. Space is allocated
// for them in the segment and the next one, or in the segment alone while the next one cannot be
// created. What it returns is less by twice an eighth of a
// segment, 2 MiB: for the end of a segment in which an entry has no room, and for the entry
// that exceeds the rest.
func (l *Log) Reserve() (int, error) {
	const tries = 2 // there may be room again since the next segment was allocated
	l.mu.Lock()
	defer l.mu.Unlock()
	part := segment.Size / 8
	for try := 0; ; try++ {
		if err := l.ready(); err != nil {
			return 0, err
		}
		n := l.w.Space() - 2*part
		if n >= part {
			return int(n), nil
		}
		next := l.w.Next
		l.mu.Unlock()
		<-next.Done
		l.mu.Lock()
		switch {
		case next.Err == nil, l.w == nil || l.w.Next != next:
		case !errors.Is(file.Classify(next.Err), commit.ErrFull) && l.w.Extend(): // the segment goes on
		case try == tries:
			return int(max(n, 0)), fmt.Errorf("log: %w", file.Classify(next.Err))
		default:
			l.w.Retry()
		}
	}
}

// Short reports whether there is no room for the next segment; see [commit.Reserver].
func (l *Log) Short() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w != nil && l.w.Next.Full()
}

// saveState writes a state record with the index up to which the log is committed and
// flushed, unless the last such record has the same index.
func (l *Log) saveState() error { return l.w.Vouch(l.meta.Epoch, min(l.committed, l.synced)) }

// Sync flushes; see [commit.Log]. Append can run at the same time.
func (l *Log) Sync() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	return l.sync()
}

// sync is Sync; the caller holds l.syncing.
func (l *Log) sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return err
	}
	if l.synced == l.last {
		return nil
	}
	if err := l.w.Flush(); err != nil {
		return l.fail(err)
	}
	files, unnamed := l.w.Unflushed()
	flushed := l.mark()
	l.mu.Unlock()
	var err error
	for _, f := range files {
		if err = l.disk.Data(f); err == nil && file.Unlinked(f) {
			err = fmt.Errorf("a segment in %s was removed while the log was open", l.segments.Names.Path)
		}
		if err != nil {
			break
		}
	}
	switch {
	case err != nil:
	case !unnamed:
		err = l.end.Write(flushed)
	default:
		if err = l.segments.Names.Flush(l.disk); err == nil {
			err = l.end.Flush(flushed)
		}
	}
	l.mu.Lock()
	if err != nil {
		return l.fail(fmt.Errorf("flush: %w", err))
	}
	l.w.Flushed(files)
	l.synced = flushed.Last
	return nil
}

// Commit marks entries as committed; see [commit.Log].
func (l *Log) Commit(index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.committed = max(l.committed, min(index, l.last))
}
