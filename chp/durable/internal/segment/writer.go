package segment

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
)

// Size is the size of a segment. Only tests change it, to change segments often.
var Size int64 = segmentBytes

// nextName is the name of the file that becomes the next segment. The suffix lets a restart
// remove it.
const nextName = "next.tmp"

// A Writer appends records to the last segment of a log, and begins the next segment when
// one is full. It writes the format of etcd's package wal, byte for byte: each record is
//
//	length 8 | walpb.Record: type, checksum, data | padding to a multiple of 8
//
// where the checksum continues that of the record before.
//
// Methods must not be called concurrently. After an error a writer writes nothing more.
type Writer struct {
	logs     string // the directory of the segments
	metadata []byte // of each segment
	token    uint64 // of state records
	owned    func() error

	files   []*os.File // with unflushed data
	unnamed bool       // the name of one of them is not flushed

	f      *os.File // the last of them
	path   string   // of f, which may have been opened under another name
	seq    uint64
	end    int64  // where buffer belongs in f
	alloc  int64  // up to where space is allocated for f
	buffer []byte // records that are not in f yet
	limit  int    // size of buffer at which it is written, so that end+limit is a multiple of writeBytes
	crc    uint32
	last   uint64 // index of the last entry
	state  state  // the last one written
	err    error

	Next *Allocation // of the next segment
	head [96]byte    // scratch
}

// newWriter returns a writer that continues the segment f, which is flushed, at offset end. It
// closes f. owned is called before a segment gets its name, and returns an error if the
// directory is not the log's any more.
func newWriter(logs string, meta *format.Meta, f *os.File, s Segment, end int64, crc uint32, last uint64, owned func() error) *Writer {
	w := &Writer{
		logs: logs, metadata: Metadata(meta), token: meta.Token, owned: owned, path: s.Path,
		files: []*os.File{f}, buffer: make([]byte, 0, writeBytes), crc: crc, last: last,
	}
	w.follow(f, s.seq, end)
	return w
}

// Place returns the number of the last segment, and the offset in it up to which it is written.
func (w *Writer) Place() (seq uint64, offset int64) { return w.seq, w.end }

// File returns the last segment.
func (w *Writer) File() *os.File { return w.f }

// Unflushed returns the segments with unflushed data, and whether the name of one is not
// flushed; from now on it counts as flushed.
func (w *Writer) Unflushed() (files []*os.File, unnamed bool) {
	files, unnamed, w.unnamed = w.files, w.unnamed, false
	return files, unnamed
}

// Flushed closes the segments that were flushed, except for the last one.
func (w *Writer) Flushed(files []*os.File) {
	last := len(files) - 1
	for _, f := range files[:last] {
		f.Close()
	}
	w.files = append([]*os.File(nil), w.files[last:]...)
}

// follow continues a segment at an offset, and prepares the segment after it.
func (w *Writer) follow(f *os.File, seq uint64, end int64) {
	w.f, w.seq, w.end, w.alloc = f, seq, end, end
	w.allocate(Size) // what is missing of it, after a restart
	w.align()
	w.Retry()
}

func (w *Writer) align() { w.limit = writeBytes - int(w.end%writeBytes) }

// allocate allocates space for the segment up to an offset, and reports whether there is
// that much.
func (w *Writer) allocate(end int64) bool {
	if end > w.alloc && fileutil.Preallocate(w.f, end, true) == nil {
		w.alloc = end
	}
	return end <= w.alloc
}

// Extend allocates as much again as a segment has, and reports whether that was possible.
func (w *Writer) Extend() bool {
	return w.allocate(w.end + int64(len(w.buffer)) + Size)
}

// Space returns the number of bytes for which space is allocated: in the segment, and in the
// next one if that is ready.
func (w *Writer) Space() int64 {
	n := max(w.alloc-w.end-int64(len(w.buffer)), 0)
	if w.Next.ready() {
		n += Size - commit.EntrySpace // its head
	}
	return n
}

// fit makes room for an entry behind the end of the allocated space: there, or in the next
// segment. Without both it leaves it to the write to fail.
func (w *Writer) fit(records int) error {
	need := w.end + int64(len(w.buffer)) + commit.EntrySpace + int64(records)
	if need > w.alloc && !w.allocate(need+writeBytes) && w.Next.ready() {
		return w.Cut()
	}
	return nil
}

// Append adds an entry. It does not keep e.Records and e.Parts.
func (w *Writer) Append(e *commit.Entry) error {
	size := e.RecordBytes()
	if err := w.fit(size); err != nil {
		return err
	}
	b := appendEntryHead(w.head[:0], e.Epoch, e.Index, format.EntryBytes+size)
	b = format.AppendEntry(b, e)
	w.last = e.Index
	return w.record(kindEntry, b, e.Records, e.Parts...)
}

// Vouch adds a state record which says that all up to an index is flushed, unless one did that
// already.
func (w *Writer) Vouch(epoch, index uint64) error {
	if index <= w.state.flushed {
		return nil
	}
	return w.saveState(state{epoch, w.token, index})
}

// saveState adds a state record.
func (w *Writer) saveState(s state) error {
	w.state = s
	return w.record(kindState, s.append(w.head[:0]), nil)
}

// record adds a record whose data are in several pieces.
func (w *Writer) record(kind int64, head, data []byte, more ...[]byte) error {
	w.crc = crc32.Update(crc32.Update(w.crc, castagnoli, head), castagnoli, data)
	n := len(head) + len(data)
	for _, p := range more {
		w.crc = crc32.Update(w.crc, castagnoli, p)
		n += len(p)
	}
	var scratch [32]byte
	b := append(scratch[:8], 1<<3, byte(kind), 2<<3)
	b = binary.AppendUvarint(b, uint64(w.crc))
	if kind != kindChecksum { // the only one without data
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
func (w *Writer) put(p []byte) error {
	for len(p) > 0 && w.err == nil {
		n := min(len(p), w.limit-len(w.buffer))
		w.buffer, p = append(w.buffer, p[:n]...), p[n:]
		if len(w.buffer) == w.limit {
			w.Flush()
		}
	}
	return w.err
}

// Flush writes the buffer to the file.
func (w *Writer) Flush() error {
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

// Full reports whether the segment has reached its size.
func (w *Writer) Full() bool { return w.end+int64(len(w.buffer)) >= Size }

// Cut ends the segment and begins the next one. The name of the new segment is not flushed. If
// there is no room for the next one, the segment goes on: there may still be some in it; and so
// it does if the process has no descriptor for the next one.
func (w *Writer) Cut() error {
	if w.Flush() == nil {
		w.err = w.begin()
	}
	return w.err
}

func (w *Writer) begin() error {
	f, err := w.Next.take()
	if err != nil {
		// The next segment was allocated when this one began. Since then there may be room
		// on the disk again.
		w.Retry()
		f, err = w.Next.take()
	}
	if file.Scarce(err) {
		return nil
	}
	if err == nil {
		err = w.owned()
	}
	if err == nil {
		err = named(w.f.Truncate(w.end), w.path) // frees space that was allocated in advance and not used
	}
	if err != nil {
		return err
	}
	w.f, w.end = f, 0
	w.begins()
	if w.state.flushed > 0 {
		w.saveState(w.state)
	}
	// A segment gets its name when its head has been written.
	if err := w.Flush(); err != nil {
		return err
	}
	w.path = filepath.Join(w.logs, name(w.seq+1, w.last+1))
	if f, err = rename(f, w.path); err != nil {
		return err
	}
	w.files, w.unnamed = append(w.files, f), true
	w.follow(f, w.seq+1, w.end)
	return nil
}

// begins adds the head of a segment.
func (w *Writer) begins() {
	w.align()
	w.record(kindChecksum, nil, nil)
	w.record(kindMetadata, w.metadata, nil)
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
	return Open(path)
}

// named returns an error of a file with the file's present name.
func named(err error, path string) error {
	var e *os.PathError
	if errors.As(err, &e) {
		e.Path = path
	}
	return err
}

// Retry allocates the next segment again.
func (w *Writer) Retry() {
	w.Next = allocate(filepath.Join(w.logs, nextName), Size)
}

// Close closes the segments, and ends the preparation of the next one. It writes nothing.
func (w *Writer) Close() {
	for _, f := range w.files {
		f.Close()
	}
	if f, err := w.Next.take(); err == nil {
		mine := file.IsFile(f, f.Name())
		f.Close() // first: Windows removes no open file
		if mine {
			os.Remove(f.Name())
		}
	}
}

// An Allocation is a file whose space is being allocated by a goroutine.
type Allocation struct {
	Done chan struct{}
	f    *os.File
	Err  error
}

func allocate(path string, size int64) *Allocation {
	a := &Allocation{Done: make(chan struct{})}
	go func() {
		defer close(a.Done)
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if err == nil {
			if err = fileutil.Preallocate(f, size, true); err != nil {
				f.Close()
				os.Remove(path)
			}
		}
		a.f, a.Err = f, err
	}()
	return a
}

// ready reports whether the file is there.
func (a *Allocation) ready() bool {
	select {
	case <-a.Done:
		return a.Err == nil
	default:
		return false
	}
}

// Full reports whether there is no file because the disk is full.
func (a *Allocation) Full() bool {
	select {
	case <-a.Done:
		return errors.Is(file.Classify(a.Err), commit.ErrFull)
	default:
		return false
	}
}

// take waits for the file.
func (a *Allocation) take() (*os.File, error) {
	<-a.Done
	return a.f, a.Err
}
