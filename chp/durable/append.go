package durable

import (
	"fmt"
	"os"

	"go.etcd.io/raft/v3/raftpb"

	"clustermap/chp/commit"
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
		if len(e.Records) > MaxEntryBytes {
			return fmt.Errorf("%w: %d bytes, at most %d", commit.ErrTooLarge, len(e.Records), MaxEntryBytes)
		}
	}
	for i := range entries {
		if err := l.w.append(&entries[i]); err != nil {
			return l.fail(err)
		}
	}
	err := l.saveState()
	if err == nil {
		err = l.w.flush()
	}
	if err == nil {
		l.last += uint64(len(entries))
		if l.w.full() {
			err = l.w.cut()
		}
	}
	if err != nil {
		return l.fail(err)
	}
	return nil
}

// saveState writes a state record with the index up to which the log is committed and
// flushed, unless the last such record has the same index.
func (l *Log) saveState() error {
	index := min(l.committed, l.synced)
	if index <= l.vouched {
		return nil
	}
	l.vouched = index
	return l.w.saveState(raftpb.HardState{Term: l.meta.Epoch, Vote: l.meta.token, Commit: index})
}

// begun takes the file of a new segment.
func (l *Log) begun(f *os.File) { l.unsynced, l.unnamed = append(l.unsynced, f), true }

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
	if err := l.w.flush(); err != nil {
		return l.fail(err)
	}
	files, last, unnamed := l.unsynced, l.last, l.unnamed
	flushed := mark{last: last, checkpoint: l.checkpoint.Index, segment: l.w.seq, offset: l.w.end}
	l.unnamed = false
	l.mu.Unlock()
	var err error
	for _, f := range files {
		if err = l.disk.data(f); err != nil {
			break
		}
	}
	switch {
	case err != nil:
	case !unnamed:
		err = l.end.write(flushed)
	default:
		if err = l.disk.dir(l.logs); err == nil {
			err = l.end.flush(flushed)
		}
	}
	l.mu.Lock()
	if err != nil {
		return l.fail(fmt.Errorf("flush: %w", err))
	}
	for _, f := range files[:len(files)-1] {
		f.Close()
	}
	l.unsynced = append([]*os.File(nil), l.unsynced[len(files)-1:]...)
	l.synced = last
	return nil
}

// Commit marks entries as committed; see [commit.Log].
func (l *Log) Commit(index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.committed = max(l.committed, min(index, l.last))
}
