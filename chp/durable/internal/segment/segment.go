// Package segment has the segments of a log: their form, which is that of etcd's package wal,
// reading them up to the first byte that cannot be read, telling a torn end from damage,
// writing them, and removing what is not needed or not readable.
package segment

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
)

// A Segment is one of etcd's files. Its name has its number and the index of its first
// entry; that of the first segment is 0, although its first entry is 1.
type Segment struct {
	Path       string
	seq, index uint64
}

func name(seq, index uint64) string { return fmt.Sprintf("%016x-%016x.wal", seq, index) }

// First returns the index that the first entry must have.
func (s *Segment) First() uint64 { return max(s.index, 1) }

// List lists the segments of a directory in order.
func List(dir string) ([]Segment, error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, file.CannotRead(err)
	}
	var found []Segment
	for _, d := range all {
		s := Segment{Path: filepath.Join(dir, d.Name())}
		_, err := fmt.Sscanf(d.Name(), "%016x-%016x.wal", &s.seq, &s.index)
		if err == nil && d.Name() == name(s.seq, s.index) {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b Segment) int { return cmp.Compare(a.seq, b.seq) })
	return found, nil
}

// From returns the segments that are needed to read from an index on.
func From(all []Segment, index uint64) []Segment {
	for i := len(all) - 1; i > 0; i-- {
		if all[i].First() <= index {
			return all[i:]
		}
	}
	return all
}

// Behind returns the segments that are needed to read what follows a checkpoint at an index. If
// the log was begun anew there, those before were to be removed.
func Behind(all []Segment, index uint64) []Segment {
	for i := len(all) - 1; i > 0; i-- {
		if all[i].First() == index+1 && all[i].seq != all[i-1].seq+1 {
			return all[i:]
		}
	}
	return From(all, index)
}

// Open opens a segment for writing and flushing.
func Open(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR, 0) }

// Metadata returns the metadata at the head of each segment: format, identity
// and token, so that segments of different logs are not mixed.
func Metadata(m *format.Meta) []byte {
	b := binary.BigEndian.AppendUint32(nil, m.Format)
	b = append(b, m.Identity[:]...)
	return binary.BigEndian.AppendUint64(b, m.Token)
}

// parseMetadata parses the result of Metadata.
func parseMetadata(b []byte) (identity [16]byte, token uint64, err error) {
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
