package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/raft/v3/raftpb"

	"clustermap/chp/commit"
)

// scratchBytes bounds the buffer that a log keeps for the next Append.
const scratchBytes = 32 << 20

// Append writes entries; see [commit.Log]. It costs one allocation of an
// entry's size for each entry, which etcd makes, and nothing per update.
func (l *Log) Append(entries ...commit.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return err
	}
	size := 0
	for i := range entries {
		e := &entries[i]
		if want := l.last + 1 + uint64(i); e.Index != want {
			return fmt.Errorf("%w: entry %d, want %d", commit.ErrOrder, e.Index, want)
		}
		if len(e.Records) > MaxEntryBytes {
			return fmt.Errorf("%w: %d bytes, at most %d", commit.ErrTooLarge, len(e.Records), MaxEntryBytes)
		}
		if e.Framed(headerBytes) == nil {
			size += headerBytes + len(e.Records)
		}
	}
	buffer := l.scratch[:0]
	if cap(buffer) < size {
		buffer = make([]byte, 0, size)
	}
	if size <= scratchBytes {
		l.scratch = buffer
	}
	l.entries = l.entries[:0]
	for i := range entries {
		e := &entries[i]
		data := e.Framed(headerBytes)
		if data != nil {
			appendHeader(data[:0], e)
		} else {
			start := len(buffer)
			buffer = appendEntry(buffer, e)
			data = buffer[start:len(buffer):len(buffer)]
		}
		l.entries = append(l.entries, raftpb.Entry{Term: e.Epoch, Index: e.Index, Data: data})
	}
	err := l.w.Save(l.state(), l.entries)
	clear(l.entries) // let the garbage collector free an unusually large buffer
	if err != nil {
		return l.fail(err)
	}
	l.last += uint64(len(entries))
	return l.followTail()
}

// state returns the next state record, which contains the index up to which the log is
// committed and flushed. It is empty if the last record in the log has the same index.
func (l *Log) state() raftpb.HardState {
	if index := min(l.committed, l.synced); index > l.vouched {
		l.vouched = index
		return raftpb.HardState{Term: l.meta.Epoch, Vote: l.meta.token, Commit: index}
	}
	return raftpb.HardState{}
}

// followTail opens the next segment if etcd has started one.
func (l *Log) followTail() error {
	next := segment{seq: l.tail.seq + 1, index: l.last + 1}
	next.path = filepath.Join(l.logs, segmentName(next.seq, next.index))
	f, err := openSegment(next.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return l.fail(err)
	}
	l.tail, l.unsynced = next, append(l.unsynced, f)
	return nil
}

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
	if err := l.w.Sync(); err != nil { // writes etcd's buffer to the file
		return l.fail(err)
	}
	files, last := l.unsynced, l.last
	l.mu.Unlock()
	var err error
	for _, f := range files {
		if err = l.disk.data(f); err != nil {
			break
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
