package durable

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/format"
)

// A Report is the result of Check.
type Report struct {
	Meta Meta
	// Checkpoint is the current checkpoint. Without one, File is empty. CheckpointEntries
	// and CheckpointRecords count its readable entries and records.
	Checkpoint        CheckpointInfo
	CheckpointEntries uint64
	CheckpointRecords uint64
	Segments          []SegmentInfo // up to the first one with a defect
	Unread            int           // number of segments after that one
	First, Last       uint64        // readable entries of the log; First > Last if there are none
	Entries, Records  uint64        // of the log
	Sequence          uint64        // last readable one
	Committed         uint64        // highest index that the log records as flushed
	Marked            bool          // the file beside the log, end, says up to where it was flushed
	Flushed           uint64        // last entry that it says was on disk; 0 if unknown
	Torn              *commit.Torn  // the torn end, which the next start would remove
	// Defect is the first defect that prevents the log from being opened, usually a
	// [*commit.CorruptError]. It is nil if the log is sound.
	Defect error
}

// MarshalJSON implements json.Marshaler: it writes Defect as its text.
func (r *Report) MarshalJSON() ([]byte, error) {
	type fields Report // without this method
	text := ""
	if r.Defect != nil {
		text = r.Defect.Error()
	}
	return json.Marshal(struct {
		fields
		Defect string `json:",omitempty"`
	}{fields(*r), text})
}

// A SegmentInfo describes one segment.
type SegmentInfo struct {
	File        string
	First, Last uint64 // readable entries; First > Last if there are none
	Entries     uint64
	Bytes       int64
	Size        int64 // of the file, including preallocated space
}

func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "identity %x, epoch %d, format %d\n", r.Meta.Identity, r.Meta.Epoch, r.Meta.Format)
	if c := &r.Checkpoint; c.File != "" {
		fmt.Fprintf(&b, "checkpoint %s: entry %d, sequence %d, %d pieces, %d updates, %d bytes\n",
			filepath.Base(c.File), c.Index, c.Sequence, r.CheckpointEntries, r.CheckpointRecords, c.Bytes)
	}
	for _, s := range r.Segments {
		fmt.Fprintf(&b, "segment %s: %d entries, %d to %d, %d of %d bytes\n", filepath.Base(s.File), s.Entries, s.First, s.Last, s.Bytes, s.Size)
	}
	if r.Unread > 0 {
		fmt.Fprintf(&b, "%d more segments, not read\n", r.Unread)
	}
	fmt.Fprintf(&b, "log: %d entries, %d to %d, %d updates, committed to %d\n", r.Entries, r.First, r.Last, r.Records, r.Committed)
	fmt.Fprintf(&b, "last sequence %d\n", r.Sequence)
	switch {
	case r.Flushed > 0:
		fmt.Fprintf(&b, "flushed to entry %d\n", r.Flushed)
	case !r.Marked && r.Meta.Format > 0:
		b.WriteString("the file end is missing or damaged: it is not known whether entries are missing at the end; the next start writes it\n")
	}
	if r.Torn != nil {
		fmt.Fprintf(&b, "unfinished writes: %d bytes at offset %d of %s, behind entry %d; the next start removes them\n",
			r.Torn.Bytes, r.Torn.Offset, filepath.Base(r.Torn.File), r.Torn.After)
	}
	if r.Defect != nil {
		fmt.Fprintf(&b, "defect: %v\n", r.Defect)
	} else {
		b.WriteString("sound\n")
	}
	return b.String()
}

// Check reads the whole log in a directory and reports which parts are readable. It
// changes nothing, takes no lock and needs no permission to write. In the log of a running
// server it may report a write in progress as torn. It checks apparent damage again,
// because that may also be a write in progress.
//
// It calls fn, if that is not nil, with all readable entries, as [Log.Replay] does; so fn can
// check the content of the entries, for example with chp.EntryCheck. When Check looks again,
// fn gets the entries again. If fn returns a [*commit.CorruptError] or [commit.ErrFormat],
// that is a defect.
//
// The error is one of reading, such as a directory that does not exist, or another one of fn.
// A defect of the log itself is in the report.
func Check(dir string, fn func(commit.Entry) error) (*Report, error) {
	if fn == nil {
		fn = func(commit.Entry) error { return nil }
	}
	if _, err := os.ReadDir(dir); err != nil {
		return nil, fmt.Errorf("log %s: %w", dir, err)
	}
	var r *Report
	err := steady(func() error {
		r = &Report{First: 1}
		return r.check(dir, fn)
	})
	switch {
	case isDefect(err):
		r.Defect = err
	case err != nil:
		return nil, fmt.Errorf("log %s: %w", dir, err)
	}
	return r, nil
}

func (r *Report) check(dir string, fn func(commit.Entry) error) error {
	s, err := look(dir)
	defer s.close()
	r.Meta, r.Marked, r.Flushed = metaOf(&s.meta), s.end != (format.Mark{}), s.end.Last
	if err != nil {
		return err
	}
	// The log is read even if the checkpoint has a defect.
	first := s.state()
	if c := s.checkpoint; c != nil {
		r.Checkpoint = CheckpointInfo(c.Info)
		if err := c.State(fn); err != nil {
			first = err
		} else {
			r.Sequence = c.Info.Sequence
		}
		r.CheckpointEntries, r.CheckpointRecords = c.Entries, c.Records
	}
	if first != nil && !isDefect(first) {
		return first
	}
	err = r.checkLog(s, fn)
	if first != nil && (err == nil || isDefect(err)) {
		return first
	}
	return err
}

// isDefect reports whether an error is one of the log, not of reading it.
func isDefect(err error) bool {
	var corrupt *commit.CorruptError
	return errors.As(err, &corrupt) || errors.Is(err, commit.ErrFormat)
}

func (r *Report) checkLog(s *source, fn func(commit.Entry) error) error {
	late := s.list()
	if len(s.walk.Segments) == 0 {
		return late
	}
	err := s.entries(func(e commit.Entry) error {
		if err := fn(e); err != nil {
			return err
		}
		if e.Count > 0 {
			r.Sequence = max(r.Sequence, lastSequence(&e))
		}
		return nil
	})
	if err != nil && !isDefect(err) {
		return err
	}
	w := &s.walk
	for i, sum := range w.Sums {
		r.Segments = append(r.Segments, SegmentInfo{File: w.Segments[i].Path, First: sum.First, Last: sum.Last, Entries: sum.Entries, Bytes: sum.Bytes, Size: sum.Size})
	}
	r.Unread = len(w.Segments) - len(w.Sums)
	r.First, r.Last, r.Entries, r.Records, r.Committed = w.Segments[0].First(), w.Last, w.Entries, w.Records, w.Vouched
	if err = cmp.Or(err, late); err != nil {
		return err
	}
	torn, err := s.check()
	if torn != nil && torn.Bytes > 0 {
		r.Torn = torn
	}
	return err
}
