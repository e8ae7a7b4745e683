package format

import (
	"encoding/binary"
	"errors"

	"clustermap/chp/commit"
)

// EntryBytes is the size of the header before the records of an entry:
//
//	first sequence 8 | time 8 | count 4 | kind 4
//
// all in network order. Index and epoch are those of the raft entry.
const EntryBytes = 24

var errShort = errors.New("entry is shorter than its header")

// AppendEntry appends the header of an entry.
func AppendEntry(b []byte, e *commit.Entry) []byte {
	b = binary.BigEndian.AppendUint64(b, e.First)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Time))
	b = binary.BigEndian.AppendUint32(b, e.Count)
	return binary.BigEndian.AppendUint32(b, e.Kind)
}

// ParseEntry parses an entry. Its Records are a part of data.
func ParseEntry(index, epoch uint64, data []byte) (commit.Entry, error) {
	if len(data) < EntryBytes {
		return commit.Entry{}, errShort
	}
	return commit.Entry{
		Index: index, Epoch: epoch,
		First:   binary.BigEndian.Uint64(data),
		Time:    int64(binary.BigEndian.Uint64(data[8:])),
		Count:   binary.BigEndian.Uint32(data[16:]),
		Kind:    binary.BigEndian.Uint32(data[20:]),
		Records: data[EntryBytes:],
	}, nil
}

// Located adds a place to damage that the function of a reader has found in an entry, unless it
// has one.
func Located(err error, file string, offset int64, lastGood uint64) error {
	var corrupt *commit.CorruptError
	if errors.As(err, &corrupt) && corrupt.File == "" {
		corrupt.File, corrupt.Offset, corrupt.LastGood = file, offset, lastGood
	}
	return err
}
