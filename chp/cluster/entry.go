package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"clustermap/chp/commit"
)

// Kinds of entries that a cluster adds to those of a server. In the log on disk they are
// entries like any other ([commit.Entry]), so that a log has one format, with a cluster and
// without; a program that knows no clusters refuses them.
const (
	// KindEmpty is the kind of an entry without records: a new log begins with one, and so does
	// each term of a leader.
	KindEmpty = commit.KindEmpty
	// KindChange is the kind of a change of the members: its records are a raftpb.ConfChangeV2.
	KindChange = commit.KindChange
	// KindMembers is the kind of the first entry of a checkpoint. Its epoch is the term of the
	// checkpoint's index, and its records are the members at that index, as JSON.
	KindMembers = commit.KindMembers
)

// A Position is where an entry stands in the log of a cluster. No two entries ever have the
// same one.
type Position struct {
	Index uint64
	Term  uint64
}

// headBytes is the size of what stands before the records in the data of an entry of raft:
//
//	first sequence 8 | time 8 | count 4 | kind 4
//
// in network order. It is what package durable writes before the records, so the data of an
// entry and what the disk has of it are the same bytes.
const headBytes = 24

// errShort means that the data of an entry have no head.
var errShort = errors.New("cluster: entry is shorter than its head")

// appendData appends the data of an entry of raft.
func appendData(b []byte, e *commit.Entry) []byte {
	b = binary.BigEndian.AppendUint64(b, e.First)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Time))
	b = binary.BigEndian.AppendUint32(b, e.Count)
	b = binary.BigEndian.AppendUint32(b, e.Kind)
	b = append(b, e.Records...)
	for _, p := range e.Parts {
		b = append(b, p...)
	}
	return b
}

// stored returns an entry of raft as the log on disk has it. Its records are a part of the
// data.
func stored(e *raftpb.Entry) (commit.Entry, error) {
	c := commit.Entry{Index: e.Index, Epoch: e.Term}
	switch {
	case e.Type == raftpb.EntryConfChangeV2:
		c.Kind, c.Records = KindChange, e.Data
	case e.Type != raftpb.EntryNormal:
		return c, errors.New("cluster: entry of an unknown type")
	case len(e.Data) == 0:
		c.Kind = KindEmpty
	case len(e.Data) < headBytes:
		return c, errShort
	default:
		c.First = binary.BigEndian.Uint64(e.Data)
		c.Time = int64(binary.BigEndian.Uint64(e.Data[8:]))
		c.Count = binary.BigEndian.Uint32(e.Data[16:])
		c.Kind = binary.BigEndian.Uint32(e.Data[20:])
		c.Records = e.Data[headBytes:]
	}
	return c, nil
}

// loaded returns an entry of the log on disk as raft has it. It copies the records.
func loaded(c *commit.Entry) raftpb.Entry {
	e := raftpb.Entry{Index: c.Index, Term: c.Epoch}
	switch c.Kind {
	case KindChange:
		e.Type, e.Data = raftpb.EntryConfChangeV2, append([]byte(nil), c.Records...)
	case KindEmpty:
	default:
		e.Data = appendData(make([]byte, 0, headBytes+c.RecordBytes()), c)
	}
	return e
}

// EntryCheck returns a function that reports whether a node can replay an entry of its log. Those of its owner are left to another
// function. The error is a [*commit.CorruptError].
func EntryCheck(owner func(commit.Entry) error) func(commit.Entry) error {
	return func(e commit.Entry) (err error) {
		switch e.Kind {
		default:
			return owner(e)
		case KindEmpty:
		case KindChange:
			err = new(raftpb.ConfChangeV2).Unmarshal(e.Records)
		case KindMembers:
			_, err = decodeMembers(e.Records)
		}
		if err != nil {
			err = &commit.CorruptError{Reason: fmt.Errorf("entry %d: %w", e.Index, err)}
		}
		return err
	}
}
