package durable

import (
	"fmt"
	"math"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
)

// cutFront removes the segments whose entries all come before the checkpoint's. It
// keeps the segment with the checkpoint's entry, so that the log always has an
// entry. The caller holds l.mu.
func (l *Log) cutFront() error {
	if l.frontCut = !l.files.TryLock(); l.frontCut {
		return nil // Read does it when it ends
	}
	defer l.files.Unlock()
	first, err := l.segments.CutFront(l.checkpoint.Index)
	l.first = max(l.first, first)
	if err != nil && !file.Scarce(err) { // else the next checkpoint does it
		return fmt.Errorf("log: %w", file.Classify(err))
	}
	return nil
}

// CutBack removes entries at the end; see [commit.Log].
func (l *Log) CutBack(index uint64) error {
	l.files.Lock()
	defer l.files.Unlock()
	l.syncing.Lock()
	defer l.syncing.Unlock()
	// What stays counts as flushed, also in segments that are not cut.
	if err := l.sync(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if index < l.checkpoint.Index || index+1 < l.first || index > l.last {
		return fmt.Errorf("%w: cut back to %d, entries %d to %d", commit.ErrOrder, index, max(l.first, l.checkpoint.Index+1), l.last)
	}
	if index == l.last {
		return nil
	}
	if err := l.cutBack(index); err != nil {
		return l.fail(err)
	}
	return nil
}

func (l *Log) cutBack(index uint64) error {
	err := l.w.Flush()
	if err == nil {
		// First, because a log may be longer than its mark says, and not shorter.
		err = l.end.Flush(format.Mark{Last: index, Checkpoint: l.checkpoint.Index, Cut: true})
	}
	l.w.Close()
	l.w = nil
	if err != nil {
		return err
	}
	if err := l.segments.CutBack(&l.meta, index); err != nil {
		return err
	}
	l.last = index
	l.committed = min(l.committed, index)
	if err := l.resume(math.MaxUint64); err != nil {
		return err
	}
	return l.end.Flush(l.mark())
}
