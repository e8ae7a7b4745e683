package durable

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
	"clustermap/chp/durable/internal/segment"
)

// A Log is a write-ahead log on disk. See [commit.Log] for its methods.
//
// Once it is replayed, it goes on without a new descriptor, for as long as the process has
// none left: a segment then becomes larger than others, and a checkpoint, Read and CutBack
// return the system's error. SetEpoch needs neither a descriptor nor space on the disk: a server
// of a pair that takes over calls it.
type Log struct {
	dir  string
	disk file.Disk
	lock *fileutil.LockedFile

	dirNames file.Directory // of dir
	nextMeta file.Spare     // of the metadata; guarded by mu
	segments segment.Dir

	// Lock order: files, syncing, mu.
	files   sync.RWMutex // read-locked while segments are read, write-locked while they are removed or truncated
	syncing sync.Mutex   // one flush at a time

	mu         sync.Mutex
	meta       format.Meta
	checkpoint CheckpointInfo
	err        error // the error that made the log fail
	closed     bool
	found      *source         // until the log is replayed
	w          *segment.Writer // once it is
	first      uint64          // first readable entry
	last       uint64          // last entry
	synced     uint64          // last flushed entry
	committed  uint64          // last committed entry

	end format.MarkFile // guarded by syncing, once the log is replayed

	checkpointing bool
	frontCut      bool // Read removes old segments when it ends
}

var _ interface {
	commit.Log
	commit.Reserver
} = (*Log)(nil)

// Meta is the metadata of a log.
type Meta struct {
	Format   uint32   // version of the files' format
	Identity [16]byte // of the log, chosen at random when it is created
	Epoch    uint64   // highest epoch that was stored
}

func metaOf(m *format.Meta) Meta { return Meta{m.Format, m.Identity, m.Epoch} }

// Meta returns the metadata.
func (l *Log) Meta() Meta {
	l.mu.Lock()
	defer l.mu.Unlock()
	return metaOf(&l.meta)
}

// CheckpointInfo describes the current checkpoint. If there is none, File is empty.
func (l *Log) CheckpointInfo() CheckpointInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checkpoint
}

// First returns the index of the first entry that Read can return.
func (l *Log) First() uint64 { return l.locked(&l.first) }

// Last returns the index of the last entry.
func (l *Log) Last() uint64 { return l.locked(&l.last) }

// Synced returns the index of the last flushed entry.
func (l *Log) Synced() uint64 { return l.locked(&l.synced) }

// Committed returns the index of the last committed entry.
func (l *Log) Committed() uint64 { return l.locked(&l.committed) }

// Epoch returns the stored epoch.
func (l *Log) Epoch() uint64 { return l.locked(&l.meta.Epoch) }

// locked returns a field that l.mu guards.
func (l *Log) locked(field *uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *field
}

// SetEpoch stores a higher epoch; see [commit.Log].
func (l *Log) SetEpoch(epoch uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return err
	}
	if epoch < l.meta.Epoch {
		return fmt.Errorf("%w: epoch %d, it is %d", commit.ErrOrder, epoch, l.meta.Epoch)
	}
	if epoch == l.meta.Epoch {
		return nil
	}
	if err := l.owned(); err != nil {
		return err
	}
	m := l.meta
	m.Epoch = epoch
	if err := l.nextMeta.Replace(m.Encode()); err != nil {
		return fmt.Errorf("log: epoch: %w", file.Classify(err))
	}
	l.meta = m
	_ = l.nextMeta.Prepare(format.MetaBytes) // else the next call tries that again
	return nil
}

// Err returns the error that made the log fail, or nil.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// ready returns an error if the log cannot be used. The caller holds l.mu.
func (l *Log) ready() error {
	switch {
	case l.closed:
		return commit.ErrClosed
	case l.err != nil:
		return l.err
	case l.w == nil:
		return commit.ErrNotReplayed
	case file.Unlinked(l.lock.File):
		return l.owned()
	}
	return nil
}

// owned returns an error, which is permanent, if the directory does not have the file any more
// that this log has locked: it was removed or replaced, or another process may have the log
// open. ready notices when the file has no name any more; before something is renamed, created
// or removed by its name, owned must be called, too, because the whole directory may have been
// moved. The caller holds l.mu.
func (l *Log) owned() error {
	if path := filepath.Join(l.dir, format.LockName); !file.IsFile(l.lock.File, path) {
		return l.fail(fmt.Errorf("%s was removed or replaced while the log was open", path))
	}
	return nil
}

// fail makes an error permanent: later calls return it too. The caller holds l.mu.
func (l *Log) fail(err error) error {
	if l.err == nil {
		l.err = fmt.Errorf("%w: %w", commit.ErrFailed, file.Classify(err))
	}
	return l.err
}

// Close flushes the log and closes it. Its last record then says that everything was
// flushed.
func (l *Log) Close() error {
	l.files.Lock()
	defer l.files.Unlock()
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return nil
	}
	err := l.sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, commit.ErrNotReplayed) {
		err = nil
	}
	if err == nil && l.w != nil {
		if err = l.saveLastState(); err == nil {
			m := l.end.Mark
			m.Segment, m.Offset = l.w.Place()
			err = l.markEnd(m)
		}
	}
	l.closed = true
	if l.w != nil {
		l.w.Close()
		l.w = nil
	}
	if l.found != nil {
		l.found.close()
	}
	l.end.Close()
	l.nextMeta.Close()
	l.dirNames.Close()
	l.segments.Names.Close()
	return errors.Join(err, l.lock.Close())
}

// saveLastState writes a state record for the last flush.
func (l *Log) saveLastState() error {
	_, before := l.w.Place()
	err := cmp.Or(l.saveState(), l.w.Flush())
	if _, end := l.w.Place(); err == nil && end > before {
		err = l.disk.Data(l.w.File())
	}
	if err != nil {
		return l.fail(err)
	}
	return nil
}

// mark is what the file beside the log says once all that is written is flushed. The caller holds
// l.mu.
func (l *Log) mark() format.Mark {
	seq, offset := l.w.Place()
	return format.Mark{Last: l.last, Checkpoint: l.checkpoint.Index, Segment: seq, Offset: offset}
}

// markEnd flushes a mark. The caller holds l.syncing and l.mu.
func (l *Log) markEnd(m format.Mark) error {
	if err := l.end.Flush(m); err != nil {
		return l.fail(err)
	}
	return nil
}
