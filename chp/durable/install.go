package durable

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
)

// Install begins a checkpoint with the state after an entry that need not be in the log, as a
// member of a cluster gets it from another. Its Commit replaces the whole log, which goes on
// behind the index. Entries of the log from the index on are removed first; those before it count
// until the checkpoint has its name.
func (l *Log) Install(index, sequence uint64) (commit.Checkpoint, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return nil, err
	}
	if index <= l.checkpoint.Index {
		return nil, fmt.Errorf("%w: checkpoint at %d in place of that at %d", commit.ErrOrder, index, l.checkpoint.Index)
	}
	c, err := l.newCheckpoint(index, sequence)
	if err != nil {
		return nil, err
	}
	c.install = true
	return c, nil
}

// newCheckpoint begins a checkpoint. The caller holds l.mu.
func (l *Log) newCheckpoint(index, sequence uint64) (*checkpointWriter, error) {
	if l.checkpointing {
		return nil, errors.New("log: a checkpoint is being written")
	}
	if err := l.owned(); err != nil {
		return nil, err
	}
	info := CheckpointInfo{
		File: filepath.Join(l.dir, format.CheckpointName(index)), Index: index, Epoch: l.meta.Epoch, Sequence: sequence,
		Time: time.Unix(0, time.Now().UnixNano()),
	}
	f, err := os.OpenFile(info.File+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log: %w", file.Classify(err))
	}
	l.checkpointing = true
	return &checkpointWriter{log: l, info: info, f: f, content: format.Checkpoint.Write(f, l.meta.Identity, format.Info(info))}, nil
}

// replace makes a complete checkpoint the whole log.
func (l *Log) replace(c *checkpointWriter) error {
	index := c.info.Index
	if l.Last() >= index {
		if err := l.CutBack(index - 1); err != nil {
			return err
		}
	}
	l.files.Lock()
	defer l.files.Unlock()
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if err := l.sync(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := cmp.Or(l.ready(), l.owned()); err != nil {
		return err
	}
	if l.last >= index {
		return fmt.Errorf("%w: entry %d was appended under a checkpoint at %d", commit.ErrOrder, l.last, index)
	}
	old := l.checkpoint
	if err := l.restart(c, index); err != nil {
		return l.fail(fmt.Errorf("checkpoint: %w", err))
	}
	if old.File != "" {
		os.Remove(old.File) // if it stays, the next Open removes it
	}
	return nil
}

// restart gives a checkpoint its name, and begins the log anew. A log whose checkpoint is
// behind its last entry was interrupted between the two; Replay goes on with it.
func (l *Log) restart(c *checkpointWriter, index uint64) error {
	err := os.Rename(c.info.File+".tmp", c.info.File)
	if err == nil {
		err = l.dirNames.Flush(l.disk)
	}
	if err != nil {
		return err
	}
	l.checkpoint = c.info
	l.w.Close()
	l.w = nil
	if err := l.segments.Restart(&l.meta, index); err != nil {
		return err
	}
	l.first, l.last, l.committed = index+1, index, index
	if err := l.resume(math.MaxUint64); err != nil {
		return err
	}
	return l.end.Flush(l.mark())
}

// State calls fn with the entries of the current checkpoint, if there is one.
func (l *Log) State(fn func(commit.Entry) error) error {
	l.files.RLock()
	defer l.files.RUnlock()
	l.mu.Lock()
	path, identity := l.checkpoint.File, l.meta.Identity
	var a *format.Archive
	var err error
	if path != "" {
		a, err = format.OpenCheckpoint(path, identity)
	}
	l.mu.Unlock()
	if err != nil || path == "" {
		return err
	}
	defer a.Close()
	return a.State(fn)
}
