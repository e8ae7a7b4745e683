package durable

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A segment is one of etcd's files. Its name has its number and the index of its first
// entry; that of the first segment is 0, although its first entry is 1.
type segment struct {
	path       string
	seq, index uint64
}

func segmentName(seq, index uint64) string { return fmt.Sprintf("%016x-%016x.wal", seq, index) }

// first returns the index that the first entry must have.
func (s *segment) first() uint64 { return max(s.index, 1) }

// segments lists the segments of a directory in order.
func segments(dir string) ([]segment, error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, file.CannotRead(err)
	}
	var found []segment
	for _, d := range all {
		s := segment{path: filepath.Join(dir, d.Name())}
		_, err := fmt.Sscanf(d.Name(), "%016x-%016x.wal", &s.seq, &s.index)
		if err == nil && d.Name() == segmentName(s.seq, s.index) {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b segment) int { return cmp.Compare(a.seq, b.seq) })
	return found, nil
}

// from returns the segments that are needed to read from an index on.
func from(all []segment, index uint64) []segment {
	for i := len(all) - 1; i > 0; i-- {
		if all[i].first() <= index {
			return all[i:]
		}
	}
	return all
}

// A walk reads segments in order and stops at the first byte that it cannot read. It
// changes nothing.
type walk struct {
	segments []segment
	meta     *format.Meta
	open     func(path string) (*os.File, error) // nil means os.Open

	// Results.
	last    uint64 // index of the last good entry; at the start, the index before the first one
	entries uint64
	records uint64
	vouched uint64 // highest index that a state record reports as flushed
	sums    []segmentSum

	// Where and why it stopped. At the end of the log, reason is nil.
	at     int   // the segment
	offset int64 // after the last good record
	headed bool  // the segment's head is complete
	reason error

	crc     uint32 // of the chain of checksums
	chained bool   // a segment came before
	entry   raftpb.Entry
}

// segmentSum describes the readable part of a segment.
type segmentSum struct {
	first, last uint64 // of the entries; first > last if there are none
	entries     uint64
	bytes       int64 // readable
	size        int64 // of the file
}

// errStop is returned by the function of a walk to end it without an error.
var errStop = errors.New("stop")

// run calls fn with each entry and the offset after it. It returns errors of fn and of
// the system; a defect of the data is in w.reason.
func (w *walk) run(fn func(e commit.Entry, end int64) error) error {
	w.last = w.segments[0].first() - 1
	for i := range w.segments {
		w.at, w.offset, w.headed = i, 0, false
		s := &w.segments[i]
		switch {
		case i > 0 && s.seq != w.segments[i-1].seq+1:
			w.reason = fmt.Errorf("segment %d is missing", w.segments[i-1].seq+1)
		case s.first() != w.last+1:
			w.reason = fmt.Errorf("it begins with entry %d, want %d", s.first(), w.last+1)
		}
		if w.reason != nil {
			return nil
		}
		w.sums = append(w.sums, segmentSum{first: s.first(), last: s.first() - 1})
		err := w.segment(s, fn)
		sum := &w.sums[i]
		sum.last, sum.bytes = w.last, w.offset
		if err != nil || w.reason != nil {
			return err
		}
	}
	return nil
}

func (w *walk) segment(s *segment, fn func(commit.Entry, int64) error) error {
	open := w.open
	if open == nil {
		open = os.Open
	}
	f, err := open(s.path)
	if err != nil {
		return file.CannotRead(err)
	}
	if w.open == nil {
		defer f.Close()
	}
	st, err := f.Stat()
	if err != nil {
		return err
	}
	sum := &w.sums[len(w.sums)-1]
	sum.size = st.Size()
	decoder := wal.NewDecoder(fileutil.NewFileReader(f))
	var record walpb.Record
	for first := true; ; first = false {
		err := decoder.Decode(&record)
		if errors.Is(err, io.EOF) {
			// The end of the file or of the data.
			end, err := dataEnd(f, w.offset)
			if err != nil {
				return file.CannotRead(err)
			}
			if end > w.offset {
				w.reason = errors.New("data after the end")
			} else if !w.headed {
				w.reason = errors.New("no head")
			}
			w.chained = true
			return nil
		}
		var system *os.PathError
		if errors.As(err, &system) {
			return file.CannotRead(err) // the disk's error
		}
		if err == nil {
			err = w.record(decoder, &record, first, fn)
			var f failed
			if errors.As(err, &f) {
				return format.Located(f.error, s.path, w.offset, w.last)
			}
		}
		if err != nil {
			w.reason = err
			return nil
		}
		w.offset, w.crc = decoder.LastOffset(), decoder.LastCRC()
	}
}

// failed is an error of the function of a walk.
type failed struct{ error }

// record handles a record with a correct checksum. It returns an error if the record is
// not valid.
func (w *walk) record(decoder wal.Decoder, r *walpb.Record, first bool, fn func(commit.Entry, int64) error) error {
	if first != (r.Type == wal.CrcType) {
		return fmt.Errorf("record of type %d out of place", r.Type)
	}
	switch r.Type {
	case wal.CrcType:
		if w.chained && r.Crc != w.crc {
			return errors.New("it does not continue the previous segment")
		}
		decoder.UpdateCRC(r.Crc)
	case wal.MetadataType:
		identity, token, err := parseSegmentMetadata(r.Data)
		if err != nil {
			return err
		}
		if identity != w.meta.Identity || token != w.meta.Token {
			return errors.New("of another server's log")
		}
		w.headed = true
	case wal.StateType:
		var s raftpb.HardState
		if err := s.Unmarshal(r.Data); err != nil {
			return err
		}
		// The checksum does not cover the type: it may be another record.
		if s.Vote != w.meta.Token || s.Commit > w.last {
			return errors.New("record of another log")
		}
		w.vouched = max(w.vouched, s.Commit)
	case wal.SnapshotType: // etcd begins a log with an empty one
		var s walpb.Snapshot
		if err := s.Unmarshal(r.Data); err != nil || s.Index != 0 || s.Term != 0 {
			return errors.Join(err, errors.New("snapshot out of place"))
		}
	case wal.EntryType:
		if !w.headed {
			return errors.New("no head")
		}
		e, err := parseRaft(&w.entry, r.Data)
		if err != nil {
			return err
		}
		if e.Index != w.last+1 {
			return fmt.Errorf("entry %d, want %d", e.Index, w.last+1)
		}
		if err := fn(e, decoder.LastOffset()); err != nil {
			return failed{err}
		}
		w.last = e.Index
		w.entries++
		w.records += uint64(e.Count)
		w.sums[len(w.sums)-1].entries++
	default:
		return fmt.Errorf("record of unknown type %d", r.Type)
	}
	return nil
}

// judge tells a torn end of a walk from damage. It returns an error if entries are
// missing that were on disk: those up to need, or up to a mark. If a torn write follows
// the readable part, it returns that, and otherwise nil.
func (w *walk) judge(need uint64, m format.Mark) (*commit.Torn, error) {
	s := &w.segments[w.at]
	if newer := (*commit.FormatError)(nil); errors.As(w.reason, &newer) {
		newer.What = s.path
		return nil, newer
	}
	lost := max(need, w.vouched, m.Last)
	torn := &commit.Torn{File: s.path, Offset: w.offset, After: w.last}
	if w.reason != nil {
		for i, s := range w.segments[w.at:] {
			start := int64(0)
			if i == 0 {
				start = w.offset
			}
			b, err := readFrom(s.path, start)
			if err != nil {
				return nil, err
			}
			lost = max(lost, vouched(b, w.meta.Token))
			torn.Bytes += int64(len(b))
		}
	}
	reason := w.reason
	switch {
	case lost > w.last:
		switch {
		case m.Last == lost && reason == nil:
			reason = m.Missing(s.seq)
		case m.Last == lost:
			reason = fmt.Errorf("%w; %w", reason, m.Missing(s.seq))
		case reason == nil:
			reason = errors.New("the log ends too early")
		}
	case w.at == 0 && !w.headed:
		// The first segment is flushed before it gets its name.
	case reason == nil:
		return nil, nil
	default:
		return torn, nil
	}
	return nil, &commit.CorruptError{File: s.path, Offset: w.offset, LastGood: w.last, Lost: lost, Reason: reason}
}

// dataEnd returns the offset after the last byte of a file that is not zero, or start
// if all bytes after start are zero.
func dataEnd(f *os.File, start int64) (int64, error) {
	buffer := make([]byte, 64<<10)
	end := start
	for offset := start; ; {
		n, err := f.ReadAt(buffer, offset)
		if i := lastNonzero(buffer[:n]); i >= 0 {
			end = offset + int64(i) + 1
		}
		offset += int64(n)
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return end, err
		}
	}
}

func lastNonzero(b []byte) int {
	for len(b) >= 8 && binary.NativeEndian.Uint64(b[len(b)-8:]) == 0 {
		b = b[:len(b)-8]
	}
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] != 0 {
			return i
		}
	}
	return -1
}

// readFrom returns the content of a file from an offset on, without the zeros at its
// end.
func readFrom(path string, start int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, file.CannotRead(err)
	}
	defer f.Close()
	end, err := dataEnd(f, start)
	if err != nil {
		return nil, file.CannotRead(err)
	}
	b := make([]byte, end-start)
	_, err = f.ReadAt(b, start)
	return b, file.CannotRead(err)
}

// vouched returns the highest index that a state record after damage reports as
// flushed. The damage breaks the chain of checksums, so a record counts if its checksum
// continues that of the record before it, wherever that is. b begins at the position of
// a record.
func vouched(b []byte, token uint64) (highest uint64) {
	b = append(b, make([]byte, 8)...) // readFrom may have removed padding of the last record
	for offset := 0; offset < len(b); offset += 8 {
		_, crc, _, n := parseFrame(b[offset:])
		for next := offset + n; n > 0 && next < len(b); next += n {
			var kind int64
			var sum uint32
			var data []byte
			kind, sum, data, n = parseFrame(b[next:])
			if n == 0 || crc32.Update(crc, castagnoli, data) != sum {
				break
			}
			crc = sum
			var s raftpb.HardState
			if kind == wal.StateType && s.Unmarshal(data) == nil && s.Vote == token {
				highest = max(highest, s.Commit)
			}
			offset = next
		}
	}
	return highest
}

// parseFrame parses a record as it is in a file: its length, then a walpb.Record with
// type, checksum and data. n is the total size, or 0 if there is no valid record.
func parseFrame(b []byte) (kind int64, crc uint32, data []byte, n int) {
	if len(b) < 16 {
		return 0, 0, nil, 0
	}
	field := binary.LittleEndian.Uint64(b)
	length, padding := field&(1<<56-1), 0
	if field>>63 != 0 {
		padding = int(field >> 56 & 7)
	}
	if length == 0 || length > uint64(len(b)-8-padding) || b[8] != 1<<3 {
		return 0, 0, nil, 0
	}
	n = 8 + int(length) + padding
	b = b[9 : 8+length]
	value, m := binary.Uvarint(b)
	if m <= 0 || value == 0 || value > uint64(wal.SnapshotType) {
		return 0, 0, nil, 0
	}
	kind, b = int64(value), b[m:]
	if len(b) == 0 || b[0] != 2<<3 {
		return 0, 0, nil, 0
	}
	value, m = binary.Uvarint(b[1:])
	if m <= 0 || value > 1<<32-1 {
		return 0, 0, nil, 0
	}
	crc, b = uint32(value), b[1+m:]
	if len(b) > 0 {
		if b[0] != 3<<3|2 {
			return 0, 0, nil, 0
		}
		value, m = binary.Uvarint(b[1:])
		if m <= 0 || value != uint64(len(b)-1-m) {
			return 0, 0, nil, 0
		}
		data = b[1+m:]
	}
	return kind, crc, data, n
}

// segmentMetadata returns the metadata at the head of each segment: format, identity
// and token, so that segments of different logs are not mixed.
func segmentMetadata(m *format.Meta) []byte {
	b := binary.BigEndian.AppendUint32(nil, m.Format)
	b = append(b, m.Identity[:]...)
	return binary.BigEndian.AppendUint64(b, m.Token)
}

// parseSegmentMetadata parses the result of segmentMetadata.
func parseSegmentMetadata(b []byte) (identity [16]byte, token uint64, err error) {
	if len(b) < 4 {
		return identity, 0, errors.New("segment of another program")
	}
	if err := format.CheckVersion("the segment", binary.BigEndian.Uint32(b)); err != nil {
		return identity, 0, err
	}
	if len(b) != 28 {
		return identity, 0, errors.New("segment of another program")
	}
	copy(identity[:], b[4:])
	return identity, binary.BigEndian.Uint64(b[20:]), nil
}

// parseRaft parses the data of an entry record.
func parseRaft(e *raftpb.Entry, data []byte) (commit.Entry, error) {
	buffer := e.Data[:0]
	e.Reset()
	e.Data = buffer // Unmarshal fills it
	if err := e.Unmarshal(data); err != nil {
		return commit.Entry{}, err
	}
	return format.ParseEntry(e.Index, e.Term, e.Data)
}
