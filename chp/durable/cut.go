package durable

import (
	"errors"
	"fmt"
	"math"
	"os"

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
	all, err := segments(l.logs)
	if file.Scarce(err) {
		return nil // the next checkpoint does it
	}
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	needed := from(all, l.checkpoint.Index)
	l.first = needed[0].first()
	for _, s := range all[:len(all)-len(needed)] {
		if err := os.Remove(s.path); err != nil {
			return fmt.Errorf("log: %w", file.Classify(err))
		}
	}
	return nil
}

// CutBack removes entries at the end; see [commit.Log].
func (l *Log) CutBack(index uint64) error {
	l.files.Lock()
	defer l.files.Unlock()
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return err
	}
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
	err := l.w.flush()
	if err == nil && index < l.end.Mark.Last {
		// First, because a log may be longer than its mark says, and not shorter.
		err = l.end.Flush(format.Mark{Last: index, Checkpoint: l.checkpoint.Index})
	}
	l.w.close()
	l.w = nil
	l.closeFiles()
	if err != nil {
		return err
	}
	all, err := segments(l.logs)
	if err != nil {
		return err
	}
	// The entry after the last one to keep always exists, so the cut is in the segment
	// where the last one ends.
	all = from(all, max(index, 1))
	w := walk{segments: all, meta: &l.meta}
	at, end := 0, int64(-1)
	err = w.run(func(e commit.Entry, behind int64) error {
		if e.Index == index+1 {
			if end < 0 { // no entry stays: keep the head
				end = w.offset
			}
			return errStop
		}
		at, end = w.at, behind
		return nil
	})
	if err == nil {
		err = &commit.CorruptError{File: all[w.at].path, Offset: w.offset, LastGood: w.last, Reason: w.reason}
	}
	if !errors.Is(err, errStop) {
		return err
	}
	if err := l.truncate(all, at, end, true); err != nil {
		return err
	}
	l.last = index
	l.committed = min(l.committed, index)
	return l.openTail(math.MaxUint64)
}

// truncate removes everything after an offset in a segment, and the segment too
// unless keep. It works from the end, so that a crash leaves a log that is torn in the
// same place, or a shorter one.
func (l *Log) truncate(all []segment, at int, offset int64, keep bool) error {
	end := at
	if keep {
		end++
	}
	for i := len(all) - 1; i >= end; i-- {
		if err := os.Remove(all[i].path); err != nil {
			return err
		}
	}
	if err := l.logNames.Flush(l.disk); err != nil {
		return err
	}
	if !keep {
		return nil
	}
	f, err := os.OpenFile(all[at].path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = f.Truncate(offset)
	if err == nil {
		err = l.disk.Data(f)
	}
	return errors.Join(err, f.Close())
}
