package durable

import (
	"cmp"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
)

// nextName is the name of the file that becomes the next segment. The suffix lets a restart
// remove it.
const nextName = "next.tmp"

// A writer appends records to the last segment of a log, and begins the next segment when
// one is full. It writes the format of etcd's package wal, byte for byte: each record is
//
//	length 8 | walpb.Record: type, checksum, data | padding to a multiple of 8
//
// where the checksum continues that of the record before.
//
// Methods must not be called concurrently. After an error a writer writes nothing more.
type writer struct {
	logs     string // the directory of the segments
	metadata []byte // of each segment
	owner    owner

	f      *os.File // the last segment; its owner closes it
	path   string   // of f, which may have been opened under another name
	seq    uint64
	end    int64  // where buffer belongs in f
	alloc  int64  // up to where space is allocated for f
	buffer []byte // records that are not in f yet
	limit  int    // size of buffer at which it is written, so that end+limit is a multiple of writeBytes
	crc    uint32
	last   uint64           // index of the last entry
	state  raftpb.HardState // the last one written
	err    error

	next *allocation
	head [96]byte // scratch
}

// An owner of a writer is its log.
type owner interface {
	owned() error   // an error if the directory is not the log's any more
	begun(*os.File) // a segment
}

// newWriter returns a writer that continues the segment f at offset end. Its owner
// gets the file of each segment that it begins.
func newWriter(logs string, metadata []byte, f *os.File, s segment, end int64, crc uint32, last uint64, o owner) *writer {
	w := &writer{logs: logs, metadata: metadata, owner: o, path: s.path, buffer: make([]byte, 0, writeBytes), crc: crc, last: last}
	w.follow(f, s.seq, end)
	return w
}

// follow continues a segment at an offset, and prepares the segment after it.
func (w *writer) follow(f *os.File, seq uint64, end int64) {
	w.f, w.seq, w.end, w.alloc = f, seq, end, end
	w.allocate(wal.SegmentSizeBytes) // what is missing of it, after a restart
	w.align()
	w.retry()
}

func (w *writer) align() { w.limit = writeBytes - int(w.end%writeBytes) }

// allocate allocates space for the segment up to an offset, and reports whether there is
// that much.
func (w *writer) allocate(end int64) bool {
	if end > w.alloc && fileutil.Preallocate(w.f, end, true) == nil {
		w.alloc = end
	}
	return end <= w.alloc
}

// extend allocates as much again as a segment has, and reports whether that was possible.
func (w *writer) extend() bool {
	return w.allocate(w.end + int64(len(w.buffer)) + wal.SegmentSizeBytes)
}

// space returns the number of bytes for which space is allocated: in the segment, and in the
// next one if that is ready.
func (w *writer) space() int64 {
	n := max(w.alloc-w.end-int64(len(w.buffer)), 0)
	if w.next.ready() {
		n += wal.SegmentSizeBytes - commit.EntrySpace // its head
	}
	return n
}

// fit makes room for an entry behind the end of the allocated space: there, or in the next
// segment. Without both it leaves it to the write to fail.
func (w *writer) fit(records int) error {
	need := w.end + int64(len(w.buffer)) + commit.EntrySpace + int64(records)
	if need > w.alloc && !w.allocate(need+writeBytes) && w.next.ready() {
		return w.cut()
	}
	return nil
}

// append adds an entry. It does not keep e.Records and e.Parts.
func (w *writer) append(e *commit.Entry) error {
	size := e.RecordBytes()
	if err := w.fit(size); err != nil {
		return err
	}
	// The raft entry's head, then ours.
	b := append(w.head[:0], 1<<3, byte(raftpb.EntryNormal), 2<<3)
	b = binary.AppendUvarint(b, e.Epoch)
	b = binary.AppendUvarint(append(b, 3<<3), e.Index)
	b = binary.AppendUvarint(append(b, 4<<3|2), uint64(format.EntryBytes+size))
	b = format.AppendEntry(b, e)
	w.last = e.Index
	return w.record(wal.EntryType, b, e.Records, e.Parts...)
}

// saveState adds a state record.
func (w *writer) saveState(s raftpb.HardState) error {
	w.state = s
	b := binary.AppendUvarint(append(w.head[:0], 1<<3), s.Term)
	b = binary.AppendUvarint(append(b, 2<<3), s.Vote)
	b = binary.AppendUvarint(append(b, 3<<3), s.Commit)
	return w.record(wal.StateType, b, nil)
}

// record adds a record whose data are in several pieces.
func (w *writer) record(kind int64, head, data []byte, more ...[]byte) error {
	w.crc = crc32.Update(crc32.Update(w.crc, castagnoli, head), castagnoli, data)
	n := len(head) + len(data)
	for _, p := range more {
		w.crc = crc32.Update(w.crc, castagnoli, p)
		n += len(p)
	}
	var scratch [32]byte
	b := append(scratch[:8], 1<<3, byte(kind), 2<<3)
	b = binary.AppendUvarint(b, uint64(w.crc))
	if kind != wal.CrcType { // the only one without data
		b = binary.AppendUvarint(append(b, 3<<3|2), uint64(n))
	}
	length := uint64(len(b) - 8 + n)
	padding := -length & 7
	field := length
	if padding > 0 {
		field |= (0x80 | padding) << 56
	}
	binary.LittleEndian.PutUint64(b, field)
	w.put(b)
	w.put(head)
	w.put(data)
	for _, p := range more {
		w.put(p)
	}
	var zeros [8]byte
	return w.put(zeros[:padding])
}

// put adds bytes to the buffer, and writes it whenever it is full.
func (w *writer) put(p []byte) error {
	for len(p) > 0 && w.err == nil {
		n := min(len(p), w.limit-len(w.buffer))
		w.buffer, p = append(w.buffer, p[:n]...), p[n:]
		if len(w.buffer) == w.limit {
			w.flush()
		}
	}
	return w.err
}

// flush writes the buffer to the file.
func (w *writer) flush() error {
	if w.err == nil && len(w.buffer) > 0 {
		if _, err := w.f.WriteAt(w.buffer, w.end); err != nil {
			w.err = named(err, w.path)
			return w.err
		}
		w.end += int64(len(w.buffer))
		w.buffer = w.buffer[:0]
		w.align()
	}
	return w.err
}

// full reports whether the segment has reached its size.
func (w *writer) full() bool { return w.end+int64(len(w.buffer)) >= wal.SegmentSizeBytes }

// cut ends the segment and begins the next one. The name of the new segment is not flushed. If
// there is no room for the next one, the segment goes on: there may still be some in it; and so
// it does if the process has no descriptor for the next one.
func (w *writer) cut() error {
	if w.flush() == nil {
		w.err = w.begin()
	}
	return w.err
}

func (w *writer) begin() error {
	f, err := w.next.take()
	if err != nil {
		// The next segment was allocated when this one began. Since then there may be room
		// on the disk again.
		w.retry()
		f, err = w.next.take()
	}
	if file.Scarce(err) {
		return nil
	}
	if err == nil {
		err = w.owner.owned()
	}
	if err == nil {
		err = named(w.f.Truncate(w.end), w.path) // frees space that was allocated in advance and not used
	}
	if err != nil {
		return err
	}
	w.f, w.end = f, 0
	w.begins()
	if w.state.Commit > 0 {
		w.saveState(w.state)
	}
	// A segment gets its name when its head has been written.
	if err := w.flush(); err != nil {
		return err
	}
	w.path = filepath.Join(w.logs, segmentName(w.seq+1, w.last+1))
	if f, err = rename(f, w.path); err != nil {
		return err
	}
	w.owner.begun(f)
	w.follow(f, w.seq+1, w.end)
	return nil
}

// begins adds the head of a segment.
func (w *writer) begins() {
	w.align()
	w.record(wal.CrcType, nil, nil)
	w.record(wal.MetadataType, w.metadata, nil)
}

// firstSegment creates the first segment of a log, and flushes it and its name. It has the
// bytes with which etcd begins a log.
func firstSegment(d file.Disk, dir *file.Directory, metadata []byte) error {
	next := allocate(filepath.Join(dir.Path, nextName), wal.SegmentSizeBytes)
	f, err := next.take()
	if err != nil {
		return err
	}
	defer func() { f.Close() }()
	w := writer{metadata: metadata, f: f, path: f.Name(), buffer: make([]byte, 0, writeBytes)}
	w.begins()
	none, err := new(walpb.Snapshot).Marshal()
	if err == nil {
		err = cmp.Or(w.record(wal.SnapshotType, none, nil), w.flush())
	}
	if err == nil {
		err = d.Data(f)
	}
	if err == nil {
		f, err = rename(f, filepath.Join(dir.Path, segmentName(0, 0)))
	}
	if err != nil {
		return err
	}
	return dir.Flush(d)
}

// rename renames a file that is open, and returns it open.
func rename(f *os.File, path string) (*os.File, error) {
	if runtime.GOOS != "windows" {
		return f, os.Rename(f.Name(), path)
	}
	// Windows renames no file that was opened as package os does.
	if err := errors.Join(f.Close(), os.Rename(f.Name(), path)); err != nil {
		return nil, err
	}
	return openSegment(path)
}

// named returns an error of a file with the file's present name.
func named(err error, path string) error {
	var e *os.PathError
	if errors.As(err, &e) {
		e.Path = path
	}
	return err
}

// retry allocates the next segment again.
func (w *writer) retry() {
	w.next = allocate(filepath.Join(w.logs, nextName), wal.SegmentSizeBytes)
}

// close ends the preparation of the next segment. It writes nothing.
func (w *writer) close() {
	if f, err := w.next.take(); err == nil {
		mine := file.IsFile(f, f.Name())
		f.Close() // first: Windows removes no open file
		if mine {
			os.Remove(f.Name())
		}
	}
}

// An allocation is a file whose space is being allocated by a goroutine.
type allocation struct {
	done chan struct{}
	f    *os.File
	err  error
}

func allocate(path string, size int64) *allocation {
	a := &allocation{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if err == nil {
			if err = fileutil.Preallocate(f, size, true); err != nil {
				f.Close()
				os.Remove(path)
			}
		}
		a.f, a.err = f, err
	}()
	return a
}

// ready reports whether the file is there.
func (a *allocation) ready() bool {
	select {
	case <-a.done:
		return a.err == nil
	default:
		return false
	}
}

// full reports whether there is no file because the disk is full.
func (a *allocation) full() bool {
	select {
	case <-a.done:
		return errors.Is(file.Classify(a.err), commit.ErrFull)
	default:
		return false
	}
}

// take waits for the file.
func (a *allocation) take() (*os.File, error) {
	<-a.done
	return a.f, a.err
}
