package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
)

// A Walk reads segments in order and stops at the first byte that it cannot read. It
// changes nothing.
type Walk struct {
	Segments []Segment
	Meta     *format.Meta
	Open     func(path string) (*os.File, error) // nil means os.Open

	// Results.
	Last    uint64 // index of the last good entry; at the start, the index before the first one
	Entries uint64
	Records uint64
	Vouched uint64 // highest index that a state record reports as flushed
	Sums    []Sum

	// Where and why it stopped. At the end of the log, Reason is nil.
	At     int   // the segment
	Offset int64 // after the last good record
	headed bool  // the segment's head is complete
	Reason error

	crc     uint32 // of the chain of checksums
	chained bool   // a segment came before
}

// Sum describes the readable part of a segment.
type Sum struct {
	First, Last uint64 // of the entries; First > Last if there are none
	Entries     uint64
	Bytes       int64 // readable
	Size        int64 // of the file
}

// ErrStop is returned by the function of a walk to end it without an error.
var ErrStop = errors.New("stop")

// Run calls fn with each entry and the offset after it. It returns errors of fn and of
// the system; a defect of the data is in w.Reason.
func (w *Walk) Run(fn func(e commit.Entry, end int64) error) error {
	w.Last = w.Segments[0].First() - 1
	for i := range w.Segments {
		w.At, w.Offset, w.headed = i, 0, false
		s := &w.Segments[i]
		switch {
		case i > 0 && s.seq != w.Segments[i-1].seq+1:
			w.Reason = fmt.Errorf("segment %d is missing", w.Segments[i-1].seq+1)
		case s.First() != w.Last+1:
			w.Reason = fmt.Errorf("it begins with entry %d, want %d", s.First(), w.Last+1)
		}
		if w.Reason != nil {
			return nil
		}
		w.Sums = append(w.Sums, Sum{First: s.First(), Last: s.First() - 1})
		err := w.segment(s, fn)
		sum := &w.Sums[i]
		sum.Last, sum.Bytes = w.Last, w.Offset
		if err != nil || w.Reason != nil {
			return err
		}
	}
	return nil
}

func (w *Walk) segment(s *Segment, fn func(commit.Entry, int64) error) error {
	open := w.Open
	if open == nil {
		open = os.Open
	}
	f, err := open(s.Path)
	if err != nil {
		return file.CannotRead(err)
	}
	if w.Open == nil {
		defer f.Close()
	}
	st, err := f.Stat()
	if err != nil {
		return err
	}
	sum := &w.Sums[len(w.Sums)-1]
	sum.Size = st.Size()
	d := newDecoder(f, st.Size())
	for first := true; ; first = false {
		r, err := d.next()
		if errors.Is(err, io.EOF) {
			// The end of the file or of the data.
			end, err := dataEnd(f, w.Offset)
			if err != nil {
				return file.CannotRead(err)
			}
			if end > w.Offset {
				w.Reason = errors.New("data after the end")
			} else if !w.headed {
				w.Reason = errors.New("no head")
			}
			w.chained = true
			return nil
		}
		var system *os.PathError
		if errors.As(err, &system) {
			return file.CannotRead(err) // the disk's error
		}
		if err == nil {
			err = w.record(d, r, first, fn)
			var f failed
			if errors.As(err, &f) {
				return format.Located(f.error, s.Path, w.Offset, w.Last)
			}
		}
		if err != nil {
			w.Reason = err
			return nil
		}
		w.Offset, w.crc = d.offset, d.crc
	}
}

// failed is an error of the function of a walk.
type failed struct{ error }

// record handles a record with a correct checksum. It returns an error if the record is
// not valid.
func (w *Walk) record(d *decoder, r record, first bool, fn func(commit.Entry, int64) error) error {
	if first != (r.kind == kindChecksum) {
		return fmt.Errorf("record of type %d out of place", r.kind)
	}
	switch r.kind {
	case kindChecksum:
		if w.chained && r.crc != w.crc {
			return errors.New("it does not continue the previous segment")
		}
		d.crc = r.crc
	case kindMetadata:
		identity, token, err := parseMetadata(r.data)
		if err != nil {
			return err
		}
		if identity != w.Meta.Identity || token != w.Meta.Token {
			return errors.New("of another server's log")
		}
		w.headed = true
	case kindState:
		// The checksum does not cover the type: it may be another record.
		s, ok := parseState(r.data)
		if !ok || s.token != w.Meta.Token || s.flushed > w.Last {
			return errors.New("record of another log")
		}
		w.Vouched = max(w.Vouched, s.flushed)
	case kindSnapshot:
		if !bytes.Equal(r.data, noSnapshot) {
			return errors.New("snapshot out of place")
		}
	case kindEntry:
		if !w.headed {
			return errors.New("no head")
		}
		epoch, index, data, ok := parseEntry(r.data)
		if !ok {
			return errors.New("not an entry")
		}
		e, err := format.ParseEntry(index, epoch, data)
		if err != nil {
			return err
		}
		if e.Index != w.Last+1 {
			return fmt.Errorf("entry %d, want %d", e.Index, w.Last+1)
		}
		if err := fn(e, d.offset); err != nil {
			return failed{err}
		}
		w.Last = e.Index
		w.Entries++
		w.Records += uint64(e.Count)
		w.Sums[len(w.Sums)-1].Entries++
	default:
		return fmt.Errorf("record of unknown type %d", r.kind)
	}
	return nil
}

// Corrupt describes what a walk stopped at, as damage of entries up to lost.
func (w *Walk) Corrupt(lost uint64) error {
	return &commit.CorruptError{File: w.Segments[w.At].Path, Offset: w.Offset, LastGood: w.Last, Lost: lost, Reason: w.Reason}
}

// Check tells a torn end of a walk from damage. It returns an error if entries are
// missing that were on disk: those up to need, or up to a mark. If a torn write follows
// the readable part, it returns that, and otherwise nil.
func (w *Walk) Check(need uint64, m format.Mark) (*commit.Torn, error) {
	s := &w.Segments[w.At]
	if newer := (*commit.FormatError)(nil); errors.As(w.Reason, &newer) {
		newer.What = s.Path
		return nil, newer
	}
	lost := max(need, w.Vouched, m.Last)
	torn := &commit.Torn{File: s.Path, Offset: w.Offset, After: w.Last}
	if w.Reason != nil {
		for i, s := range w.Segments[w.At:] {
			start := int64(0)
			if i == 0 {
				start = w.Offset
			}
			b, err := readFrom(s.Path, start)
			if err != nil {
				return nil, err
			}
			if !m.Cut {
				lost = max(lost, vouched(b, w.Meta.Token))
			}
			torn.Bytes += int64(len(b))
		}
	}
	reason := w.Reason
	switch {
	case lost > w.Last:
		switch {
		case m.Last == lost && reason == nil:
			reason = m.Missing(s.seq)
		case m.Last == lost:
			reason = fmt.Errorf("%w; %w", reason, m.Missing(s.seq))
		case reason == nil:
			reason = errors.New("the log ends too early")
		}
	case w.At == 0 && !w.headed:
		// The first segment is flushed before it gets its name.
	case reason == nil:
		return nil, nil
	default:
		return torn, nil
	}
	return nil, &commit.CorruptError{File: s.Path, Offset: w.Offset, LastGood: w.Last, Lost: lost, Reason: reason}
}
