package segment

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
)

// A Dir is the directory of the segments. Its methods must not be called concurrently, and those
// that remove or replace segments not while a walk or a writer uses these.
type Dir struct {
	Disk  file.Disk
	Names file.Directory
}

// Create creates the first segment of a log, and flushes it and its name. It has the
// bytes with which etcd begins a log.
func (d *Dir) Create(meta *format.Meta) error {
	next := allocate(filepath.Join(d.Names.Path, nextName), Size)
	f, err := next.take()
	if err != nil {
		return err
	}
	w := Writer{metadata: Metadata(meta), f: f, path: f.Name(), buffer: make([]byte, 0, writeBytes)}
	w.begins()
	if err := w.record(kindSnapshot, noSnapshot, nil); err != nil {
		f.Close()
		return err
	}
	return d.publish(&w, name(0, 0))
}

// publish writes, flushes and closes a segment that has a head, and gives it its name.
func (d *Dir) publish(w *Writer, name string) error {
	f := w.f
	defer func() { f.Close() }()
	err := w.Flush()
	if err == nil {
		err = d.Disk.Data(f)
	}
	if err == nil {
		f, err = rename(f, filepath.Join(d.Names.Path, name))
	}
	if err != nil {
		return err
	}
	return d.Names.Flush(d.Disk)
}

// Restart begins the log anew behind an index: with a segment whose number leaves out one, so
// that those before it, which it removes, are not taken for a part of the same log.
func (d *Dir) Restart(meta *format.Meta, index uint64) error {
	all, err := List(d.Names.Path)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(d.Names.Path, nextName)); err != nil {
		return err
	}
	next := allocate(filepath.Join(d.Names.Path, nextName), Size)
	f, err := next.take()
	if err != nil {
		return err
	}
	w := Writer{metadata: Metadata(meta), f: f, path: f.Name(), buffer: make([]byte, 0, writeBytes)}
	w.begins()
	if err := d.publish(&w, name(all[len(all)-1].seq+2, index+1)); err != nil {
		return err
	}
	for _, s := range all {
		if err := os.Remove(s.Path); err != nil {
			return err
		}
	}
	return d.Names.Flush(d.Disk)
}

// Resume returns a writer behind the last entry of the log, and flushes all segments: a process
// that was killed may have left unflushed writes. It reads those from number first on
// again, at least the last one.
func (d *Dir) Resume(meta *format.Meta, first uint64, owned func() error) (*Writer, error) {
	all, err := List(d.Names.Path)
	if err != nil {
		return nil, err
	}
	tail := all[len(all)-1]
	again := all[len(all)-1:]
	for len(again) < len(all) && again[0].seq > first {
		again = all[len(all)-len(again)-1:]
	}
	w := Walk{Segments: again, Meta: meta}
	err = w.Run(func(commit.Entry, int64) error { return nil })
	if err == nil && w.Reason != nil {
		err = w.Corrupt(0)
	}
	if err != nil {
		return nil, err
	}
	var last *os.File
	for _, s := range all {
		f, err := Open(s.Path)
		if err == nil {
			err = d.Disk.Data(f)
			if s != tail || err != nil {
				err = errors.Join(err, f.Close())
			}
		}
		if err != nil {
			return nil, err
		}
		last = f
	}
	if err := d.Names.Flush(d.Disk); err != nil {
		last.Close()
		return nil, err
	}
	return newWriter(d.Names.Path, meta, last, tail, w.Offset, w.crc, w.Last, owned), nil
}

// CutFront removes the segments whose entries all come before an index, and returns the index of
// the first entry that is left.
func (d *Dir) CutFront(index uint64) (first uint64, err error) {
	all, err := List(d.Names.Path)
	if err != nil {
		return 0, err
	}
	needed := From(all, index)
	for _, s := range all[:len(all)-len(needed)] {
		if err := os.Remove(s.Path); err != nil {
			return needed[0].First(), err
		}
	}
	return needed[0].First(), nil
}

// CutBack removes the entries behind an index.
func (d *Dir) CutBack(meta *format.Meta, index uint64) error {
	all, err := List(d.Names.Path)
	if err != nil {
		return err
	}
	// The entry after the last one to keep always exists, so the cut is in the segment
	// where the last one ends.
	all = From(all, max(index, 1))
	w := Walk{Segments: all, Meta: meta}
	at, end := 0, int64(-1)
	err = w.Run(func(e commit.Entry, behind int64) error {
		if e.Index == index+1 {
			if end < 0 { // no entry stays: keep the head
				end = w.Offset
			}
			return ErrStop
		}
		at, end = w.At, behind
		return nil
	})
	if err == nil {
		err = w.Corrupt(0)
	}
	if !errors.Is(err, ErrStop) {
		return err
	}
	return d.truncate(all, at, end, true)
}

// Tear removes what a walk could not read.
func (d *Dir) Tear(w *Walk) error { return d.truncate(w.Segments, w.At, w.Offset, w.headed) }

// truncate removes everything after an offset in a segment, and the segment too
// unless keep. It works from the end, so that a crash leaves a log that is torn in the
// same place, or a shorter one.
func (d *Dir) truncate(all []Segment, at int, offset int64, keep bool) error {
	end := at
	if keep {
		end++
	}
	for i := len(all) - 1; i >= end; i-- {
		if err := os.Remove(all[i].Path); err != nil {
			return err
		}
	}
	if err := d.Names.Flush(d.Disk); err != nil {
		return err
	}
	if !keep {
		return nil
	}
	f, err := os.OpenFile(all[at].Path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = f.Truncate(offset)
	if err == nil {
		err = d.Disk.Data(f)
	}
	return errors.Join(err, f.Close())
}

// Renew copies the segments with entries behind a mark to new files, which replace them. It
// returns the number of the first one.
//
// These entries are not known to be on the disk. After a flush that has failed, also in a process that was
// killed before it knew, the system's cache can have what the disk has not, and take it
// for written: then the next flush writes nothing, and succeeds. To write the same bytes to
// the same file again does not help. ext4 does write them, but if that failed at first,
// and the space was allocated in advance, the file has zeros there when the cache is gone.
func (d *Dir) Renew(w *Walk, m format.Mark) (first uint64, err error) {
	if err := os.RemoveAll(filepath.Join(d.Names.Path, nextName)); err != nil { // gives space
		return 0, err
	}
	first = math.MaxUint64
	for i, sum := range w.Sums {
		s := &w.Segments[i]
		if s.seq < m.Segment || s.seq == m.Segment && sum.Bytes <= m.Offset || i == w.At && !w.headed {
			continue
		}
		if err := d.copySegment(s.Path, sum.Bytes); err != nil {
			return 0, err
		}
		first = min(first, s.seq)
	}
	return first, nil
}

// copySegment replaces a segment by a copy of its first bytes, which is flushed. Its name is
// not.
func (d *Dir) copySegment(path string, size int64) error {
	if err := os.Truncate(path, size); err != nil { // there may be no other space for the copy
		return err
	}
	f, err := os.OpenFile(filepath.Join(d.Names.Path, nextName), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err = copyInto(f, path, size); err == nil {
		err = d.Disk.Data(f)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// copyInto copies the first bytes of a file.
func copyInto(f *os.File, path string, size int64) error {
	from, err := os.Open(path)
	if err != nil {
		return file.CannotRead(err)
	}
	defer from.Close()
	// Not by the system, which may let both files share what the disk has.
	_, err = io.CopyN(struct{ io.Writer }{f}, from, size)
	return err
}
