package durable

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"clustermap/chp/commit"
)

// segmentBytes is the size of a segment, all of which is allocated when it is
// made, as is that of the one that will be next. So this is half of what the smallest log
// takes on the disk.
const segmentBytes = 16 << 20

// etcd has one size for all logs of a process.
func init() { wal.SegmentSizeBytes = segmentBytes }

// scratchBytes bounds the memory that a log keeps for the next Append.
const scratchBytes = 32 << 20

// A Log is a log on the disk. See [commit.Log] for what its methods do.
type Log struct {
	dir  string
	logs string // the folder of the segments
	disk disk
	lock *fileutil.LockedFile

	// Order of the locks: files, syncing, mu.
	files   sync.RWMutex // held for reading while segments are read, else while they are cut
	syncing sync.Mutex   // one flush at a time

	mu         sync.Mutex
	meta       Meta
	checkpoint CheckpointInfo
	err        error // why the log takes nothing more
	closed     bool
	w          *wal.WAL // nil until the log is replayed
	first      uint64   // first readable entry
	last       uint64   // last entry
	synced     uint64   // last entry on the disk
	committed  uint64   // last entry that is committed
	vouched    uint64   // what the last record of it in the log says
	tail       segment
	unsynced   []*os.File // segments with something to flush, for flushing; the last one is the tail

	checkpointing bool
	frontCut      bool // old segments are to be removed when nobody reads

	// Memory of Append.
	scratch []byte
	entries []raftpb.Entry
}

var _ commit.Log = (*Log)(nil)

// Options are the settings of a log.
type Options struct {
	// NoCreate makes Open return an error that is [os.ErrNotExist] if there is
	// no log in the directory.
	NoCreate bool
}

// Open opens the log in a directory, and creates both if they do not exist. It
// takes the directory for this process alone: until Close, another Open fails
// with [commit.ErrLocked]. The log has to be replayed before it can be written.
//
// Other errors are [commit.ErrReadOnly], [commit.ErrFull], [commit.ErrFormat] and
// [*commit.CorruptError].
func Open(dir string, options Options) (*Log, error) {
	return open(dir, options, realDisk)
}

func open(dir string, options Options, disk disk) (_ *Log, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("log %s: %w", dir, classify(err))
		}
	}()
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		if options.NoCreate {
			return nil, err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		if err := disk.dir(filepath.Dir(filepath.Clean(dir))); err != nil {
			return nil, err
		}
	}
	if options.NoCreate {
		if _, err := os.Stat(filepath.Join(dir, metaName)); err != nil {
			return nil, err
		}
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	l := &Log{dir: dir, logs: filepath.Join(dir, logName), disk: disk, lock: lock}
	if err := l.open(); err != nil {
		lock.Close()
		return nil, err
	}
	return l, nil
}

// How long to wait for locks. A lock outlives its owner for a moment if that
// closed the file while some goroutine of it started another process: that one
// has a copy of the file until it runs its own program. Who has the directory
// need not expect anything else of a segment's lock.
const (
	lockPatience    = 100 * time.Millisecond
	segmentPatience = 2 * time.Second
)

// lockDir takes a directory for this process.
func lockDir(dir string) (lock *fileutil.LockedFile, err error) {
	err = patiently(lockPatience, func() (err error) {
		lock, err = fileutil.TryLockFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
		return err
	})
	if errors.Is(err, fileutil.ErrLocked) {
		err = commit.ErrLocked
	}
	return lock, err
}

// patiently calls f until it finds no lock.
func patiently(patience time.Duration, f func() error) error {
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if err := f(); !errors.Is(err, fileutil.ErrLocked) || time.Now().After(end) {
			return err
		}
	}
}

// open reads or makes the metadata.
func (l *Log) open() error {
	meta, err := readMeta(l.dir)
	if errors.Is(err, os.ErrNotExist) {
		meta, err = l.create()
	}
	if err != nil {
		return err
	}
	l.meta = meta
	indexes, err := checkpoints(l.dir)
	if err != nil {
		return err
	}
	if len(indexes) > 0 {
		path := filepath.Join(l.dir, checkpointName(indexes[len(indexes)-1]))
		l.checkpoint, err = readCheckpointHeader(path, meta.Identity)
	}
	return err
}

// create makes an empty log. The metadata come last: they say that the rest is
// there.
func (l *Log) create() (Meta, error) {
	if _, err := os.Stat(filepath.Join(l.dir, restoreName)); err == nil {
		return Meta{}, errUnfinished
	}
	if indexes, err := checkpoints(l.dir); err != nil || len(indexes) > 0 {
		return Meta{}, errors.Join(err, noMeta(l.dir))
	}
	found, err := segments(l.logs)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Meta{}, err
	}
	if len(found) > 1 {
		return Meta{}, noMeta(l.dir)
	}
	if len(found) == 1 {
		// A creation that did not come to its end has no entries.
		b, err := readFrom(found[0].path, 0)
		if err != nil {
			return Meta{}, err
		}
		if hasEntries(b) {
			return Meta{}, noMeta(l.dir)
		}
		if err := os.RemoveAll(l.logs); err != nil {
			return Meta{}, err
		}
	}
	m := Meta{Format: formatVersion}
	rand.Read(m.Identity[:])
	var token [8]byte
	rand.Read(token[:])
	m.token = binary.BigEndian.Uint64(token[:])
	w, err := wal.Create(zap.NewNop(), l.logs, segmentMetadata(&m))
	if err != nil {
		return Meta{}, err
	}
	if err := w.Close(); err != nil {
		return Meta{}, err
	}
	return m, l.disk.replaceFile(l.dir, filepath.Join(l.dir, metaName), m.encode())
}

// hasEntries tells whether a new segment is more than a head.
func hasEntries(b []byte) bool {
	for {
		kind, _, _, n := parseFrame(append(b, make([]byte, 8)...))
		if n == 0 {
			return lastNonzero(b) >= 0
		}
		if kind == wal.EntryType {
			return true
		}
		b = b[min(n, len(b)):]
	}
}

// Meta returns the metadata.
func (l *Log) Meta() Meta {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.meta
}

// CheckpointInfo returns what is known of the current checkpoint. Without one, File is
// empty.
func (l *Log) CheckpointInfo() CheckpointInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checkpoint
}

// Replay reads everything and makes the log ready for writing. It works
// once; see [commit.Log].
func (l *Log) Replay(fn func(commit.Entry) error) (commit.Replayed, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := l.replay(fn)
	if err != nil {
		err = fmt.Errorf("log %s: %w", l.dir, classify(err))
	}
	return r, err
}

func (l *Log) replay(fn func(commit.Entry) error) (r commit.Replayed, err error) {
	switch {
	case l.closed:
		return r, commit.ErrClosed
	case l.err != nil:
		return r, l.err
	case l.w != nil:
		return r, errors.New("replayed before")
	}
	if l.checkpoint.File != "" {
		r.Checkpoint, r.Sequence = l.checkpoint.Index, l.checkpoint.Sequence
		r.Entries, r.Records, err = readCheckpoint(l.checkpoint.File, l.meta.Identity, fn)
		if err != nil {
			return r, err
		}
	}
	all, err := segments(l.logs)
	if err == nil && len(all) == 0 {
		err = fs.ErrNotExist
	}
	if errors.Is(err, fs.ErrNotExist) {
		return r, noSegments(l.logs, r.Checkpoint)
	}
	if err != nil {
		return r, err
	}
	needed := from(all, l.checkpoint.Index)
	if first := needed[0].first(); first > l.checkpoint.Index+1 {
		return r, beginsLate(needed[0].path, l.checkpoint.Index, first)
	}
	w := walk{segments: needed, meta: &l.meta}
	err = w.run(func(e commit.Entry, _ int64) error {
		if e.Index <= l.checkpoint.Index {
			return nil
		}
		r.Entries++
		r.Records += uint64(e.Count)
		return fn(e)
	})
	if err != nil {
		return r, err
	}
	r.Torn, err = w.judge(l.checkpoint.Index)
	if err != nil {
		return r, err
	}
	r.Last, r.Committed = w.last, max(w.vouched, l.checkpoint.Index)

	// From here on files are changed.
	if r.Torn != nil {
		if err := l.truncate(w.segments, w.at, w.offset, w.headed); err != nil {
			return r, err
		}
		if r.Torn.Bytes == 0 {
			r.Torn = nil // an empty segment
		}
	}
	if err := l.tidy(all[:len(all)-len(needed)]); err != nil {
		return r, err
	}
	l.first, l.last, l.committed = needed[0].first(), w.last, r.Committed
	if err := l.openTail(); err != nil {
		return r, l.fail(err)
	}
	return r, nil
}

// truncate removes everything behind a place in a segment, and the segment too
// unless keep. It works from the end: what a crash leaves is
// torn as before, or shorter.
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
	if err := l.disk.dir(l.logs); err != nil {
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
		err = l.disk.data(f)
	}
	return errors.Join(err, f.Close())
}

// tidy removes what a crash has left: unfinished files, a replaced checkpoint, segments
// that a checkpoint has made needless. etcd would begin its next segment on top of what an
// unfinished one holds.
func (l *Log) tidy(needless []segment) error {
	var paths []string
	for _, s := range needless {
		paths = append(paths, s.path)
	}
	indexes, err := checkpoints(l.dir)
	if err != nil {
		return err
	}
	for _, index := range indexes {
		if index < l.checkpoint.Index {
			paths = append(paths, filepath.Join(l.dir, checkpointName(index)))
		}
	}
	for _, dir := range []string{l.dir, l.logs} {
		found, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, d := range found {
			if strings.HasSuffix(d.Name(), ".tmp") {
				paths = append(paths, filepath.Join(dir, d.Name()))
			}
		}
	}
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// openTail opens etcd's log for writing behind l.last, and flushes what is there:
// a process that was killed may have left writes that are not on the disk yet.
func (l *Log) openTail() error {
	all, err := segments(l.logs)
	if err != nil {
		return err
	}
	// etcd reads the segments from the one with this index on. It
	// would like to find a snapshot record there, and goes on without.
	start := max(l.last, all[0].index)
	var w *wal.WAL
	err = patiently(segmentPatience, func() (err error) {
		w, err = wal.Open(zap.NewNop(), l.logs, walpb.Snapshot{Index: start})
		return err
	})
	if err != nil {
		return err
	}
	_, _, _, err = w.ReadAll()
	if err != nil && !errors.Is(err, wal.ErrSnapshotNotFound) {
		w.Close()
		return err
	}
	w.SetUnsafeNoFsync() // Sync does it
	for _, s := range all {
		f, err := openSegment(s.path)
		if err == nil {
			err = l.disk.data(f)
			if s != all[len(all)-1] || err != nil {
				err = errors.Join(err, f.Close())
			} else {
				l.unsynced, l.tail = append(l.unsynced, f), s
			}
		}
		if err != nil {
			w.Close()
			return err
		}
	}
	if err := l.disk.dir(l.logs); err != nil {
		l.closeFiles()
		w.Close()
		return err
	}
	l.w, l.synced, l.vouched = w, l.last, 0
	return nil
}

// openSegment opens a segment for flushing. Not for reading only: some systems
// do not flush such a file.
func openSegment(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR, 0) }

func (l *Log) closeFiles() {
	for _, f := range l.unsynced {
		f.Close()
	}
	l.unsynced = nil
}

// ready tells why the log cannot be used. The caller holds l.mu.
func (l *Log) ready() error {
	switch {
	case l.closed:
		return commit.ErrClosed
	case l.err != nil:
		return l.err
	case l.w == nil:
		return commit.ErrNotReplayed
	}
	return nil
}

// fail makes an error final. The caller holds l.mu.
func (l *Log) fail(err error) error {
	if l.err == nil {
		l.err = fmt.Errorf("%w: %w", commit.ErrFailed, classify(err))
	}
	return l.err
}

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
		size += headerBytes + len(e.Records)
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
		start := len(buffer)
		buffer = appendEntry(buffer, e)
		l.entries = append(l.entries, raftpb.Entry{Term: e.Epoch, Index: e.Index, Data: buffer[start:len(buffer):len(buffer)]})
	}
	err := l.w.Save(l.state(), l.entries)
	clear(l.entries) // an unusually large buffer shall go
	if err != nil {
		return l.fail(err)
	}
	l.last += uint64(len(entries))
	return l.followTail()
}

// state returns the record of what is committed and on the disk, empty if the
// log has it already.
func (l *Log) state() raftpb.HardState {
	if index := min(l.committed, l.synced); index > l.vouched {
		l.vouched = index
		return raftpb.HardState{Term: l.meta.Epoch, Vote: l.meta.token, Commit: index}
	}
	return raftpb.HardState{}
}

// followTail notices when etcd has begun the next segment.
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

// Sync flushes; see [commit.Log]. Entries may be appended meanwhile.
func (l *Log) Sync() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	return l.sync()
}

// sync is Sync for who holds l.syncing.
func (l *Log) sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return err
	}
	if l.synced == l.last {
		return nil
	}
	if err := l.w.Sync(); err != nil { // hands etcd's buffer to the system
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

// Commit notes what is committed; see [commit.Log].
func (l *Log) Commit(index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.committed = max(l.committed, min(index, l.last))
}

// First returns the index of the first entry that Read can deliver.
func (l *Log) First() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

// Last returns the index of the last entry.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Synced returns the index of the last entry that is on the disk.
func (l *Log) Synced() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.synced
}

// Committed returns the index of the last entry that is committed.
func (l *Log) Committed() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.committed
}

// Err returns why the log takes nothing more, nil if it does.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Read reads from an index on; see [commit.Log]. It holds no lock that a writer
// needs.
func (l *Log) Read(from uint64, fn func(commit.Entry) error) error {
	l.files.RLock()
	err := l.read(from, fn)
	l.files.RUnlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frontCut && l.ready() == nil {
		err = errors.Join(err, l.cutFront())
	}
	return err
}

func (l *Log) read(index uint64, fn func(commit.Entry) error) error {
	l.mu.Lock()
	err := l.ready()
	first, last, meta := l.first, l.last, l.meta
	if err == nil && l.w.Sync() != nil { // etcd's buffer
		err = l.fail(errors.New("write"))
	}
	l.mu.Unlock()
	switch {
	case err != nil:
		return err
	case index < first:
		return fmt.Errorf("%w: %d, the first is %d", commit.ErrGone, index, first)
	case index > last+1:
		return fmt.Errorf("%w: %d, the last entry is %d", commit.ErrOrder, index, last)
	case index == last+1:
		return nil
	}
	all, err := segments(l.logs)
	if err != nil {
		return err
	}
	w := walk{segments: from(all, index), meta: &meta}
	err = w.run(func(e commit.Entry, _ int64) error {
		if e.Index >= index {
			if err := fn(e); err != nil {
				return err
			}
		}
		if e.Index == last {
			return errStop
		}
		return nil
	})
	switch {
	case errors.Is(err, errStop):
		return nil
	case err == nil:
		return &commit.CorruptError{File: w.segments[w.at].path, Offset: w.offset, LastGood: w.last, Lost: last, Reason: w.reason}
	}
	return err
}

// cutFront removes the segments that hold only entries before the checkpoint's. It
// leaves the one with the checkpoint's entry, so that the
// log is never without an entry. The caller holds l.mu.
func (l *Log) cutFront() error {
	if l.frontCut = !l.files.TryLock(); l.frontCut {
		return nil // Read does it when it ends
	}
	defer l.files.Unlock()
	all, err := segments(l.logs)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	needed := from(all, l.checkpoint.Index)
	if err := l.w.ReleaseLockTo(l.checkpoint.Index); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	l.first = needed[0].first()
	for _, s := range all[:len(all)-len(needed)] {
		if err := os.Remove(s.path); err != nil {
			return fmt.Errorf("log: %w", classify(err))
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
	l.closeFiles()
	err := l.w.Close()
	l.w = nil
	if err != nil {
		return err
	}
	all, err := segments(l.logs)
	if err != nil {
		return err
	}
	// The entry behind the last one that stays is always there, so the place of the cut
	// is in the segment where that one ends.
	all = from(all, max(index, 1))
	w := walk{segments: all, meta: &l.meta}
	at, end := 0, int64(-1)
	err = w.run(func(e commit.Entry, behind int64) error {
		if e.Index == index+1 {
			if end < 0 { // it is the first one of all: keep the head
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
	return l.openTail()
}

// Epoch returns the stored epoch.
func (l *Log) Epoch() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.meta.Epoch
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
	m := l.meta
	m.Epoch = epoch
	if err := l.disk.replaceFile(l.dir, filepath.Join(l.dir, metaName), m.encode()); err != nil {
		return fmt.Errorf("log: epoch: %w", classify(err))
	}
	l.meta = m
	return nil
}

// Close flushes and closes. The log's end then says that all of it was flushed.
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
		err = l.saveLastState()
	}
	l.closed = true
	if l.w != nil {
		if e := l.w.Close(); e != nil {
			l.w.Close() // now without a buffer to write, so that it gives up its locks
			if err == nil {
				err = l.fail(e)
			}
		}
	}
	l.closeFiles()
	l.scratch, l.entries = nil, nil
	return errors.Join(err, l.lock.Close())
}

// saveLastState writes what was flushed since the last entry.
func (l *Log) saveLastState() error {
	s := l.state()
	if s.Commit == 0 {
		return nil
	}
	err := l.w.Save(s, nil)
	if err == nil {
		err = l.w.Sync()
	}
	if err == nil {
		// Only a new segment could fill up here, and it needs no flush: nothing in
		// it has been reported.
		err = l.disk.data(l.unsynced[len(l.unsynced)-1])
	}
	if err != nil {
		return l.fail(err)
	}
	return nil
}
