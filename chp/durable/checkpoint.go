package durable

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
)

// CheckpointInfo is the content of a checkpoint's header.
type CheckpointInfo struct {
	File     string
	Index    uint64 // of the last entry in the state
	Epoch    uint64
	Sequence uint64 // last sequence of the state
	Time     time.Time
	Bytes    int64
}

// checkpointWriter implements commit.Checkpoint.
type checkpointWriter struct {
	log      *Log
	info     CheckpointInfo // without Bytes until it is complete
	f        *os.File
	content  *format.ArchiveWriter
	finished bool
	install  bool // it replaces the log
}

// Checkpoint begins a checkpoint; see [commit.Log]. While one is being written, it
// returns an error.
func (l *Log) Checkpoint(index, sequence uint64) (commit.Checkpoint, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return nil, err
	}
	if index == 0 || index < l.checkpoint.Index || index > l.last {
		return nil, fmt.Errorf("%w: checkpoint at %d, entries %d to %d", commit.ErrOrder, index, l.checkpoint.Index+1, l.last)
	}
	c, err := l.newCheckpoint(index, sequence)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (c *checkpointWriter) Append(e commit.Entry) error {
	if c.finished {
		return commit.ErrClosed
	}
	e.Index = c.info.Index
	if err := c.content.Append(&e); err != nil {
		return fmt.Errorf("log: checkpoint: %w", file.Classify(err))
	}
	return nil
}

// Commit makes the checkpoint the current one. If it fails, the checkpoint is removed
// and the log stays usable, unless the log's own flush failed.
func (c *checkpointWriter) Commit() error {
	if c.finished {
		return commit.ErrClosed
	}
	defer c.Abort()
	err := c.content.Finish()
	if err == nil {
		err = c.log.disk.Data(c.f)
	}
	if err == nil {
		c.info.Bytes, err = c.f.Seek(0, io.SeekEnd)
	}
	if err != nil {
		return fmt.Errorf("log: checkpoint: %w", file.Classify(err))
	}
	if c.install {
		return c.log.replace(c)
	}
	// The entries up to the checkpoint must be on disk before it becomes current.
	if err := c.log.Sync(); err != nil {
		return err
	}
	return c.log.adopt(c)
}

func (c *checkpointWriter) Abort() {
	if c.finished {
		return
	}
	c.finished = true
	c.f.Close()
	os.Remove(c.info.File + ".tmp")
	c.log.mu.Lock()
	c.log.checkpointing = false
	c.log.mu.Unlock()
}

// adopt gives a complete checkpoint its name and removes the files that it replaces.
func (l *Log) adopt(c *checkpointWriter) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := cmp.Or(l.ready(), l.owned()); err != nil {
		return err
	}
	if c.info.Index < l.checkpoint.Index {
		return fmt.Errorf("%w: a checkpoint at %d was installed under one at %d", commit.ErrOrder, l.checkpoint.Index, c.info.Index)
	}
	if c.info.Index > l.last {
		return fmt.Errorf("%w: the log was cut back to %d under a checkpoint at %d", commit.ErrOrder, l.last, c.info.Index)
	}
	if err := os.Rename(c.info.File+".tmp", c.info.File); err != nil {
		return fmt.Errorf("log: checkpoint: %w", file.Classify(err))
	}
	if err := l.dirNames.Flush(l.disk); err != nil {
		// It is unknown which of the two checkpoints a restart would find.
		return l.fail(fmt.Errorf("checkpoint: %w", err))
	}
	old := l.checkpoint
	l.checkpoint = c.info
	m := l.end.Mark
	m.Checkpoint = c.info.Index
	if err := l.markEnd(m); err != nil {
		return err
	}
	if old.File != "" && old.Index != c.info.Index {
		os.Remove(old.File) // if it stays, the next Open removes it
	}
	return l.cutFront()
}
