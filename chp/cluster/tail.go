package cluster

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// A tail is the end of the log in memory, and what raft reads of it (raft.Storage): entries
// that are on the disk. What a follower needs that is older comes in a snapshot.
//
// Raft and messages under way refer to slices of entries, so no element is ever changed.
type tail struct {
	hard     raftpb.HardState // at the start
	conf     raftpb.ConfState // at the start
	prev     Position         // before the first entry
	entries  []raftpb.Entry
	bytes    int
	dead     int // bytes of removed entries that the array still has
	snapshot func() (raftpb.Snapshot, error)
}

var _ raft.Storage = (*tail)(nil)

func sizeOf(e *raftpb.Entry) int { return entryBytes + len(e.Data) }

func (t *tail) InitialState() (raftpb.HardState, raftpb.ConfState, error) {
	return t.hard, t.conf, nil
}

func (t *tail) FirstIndex() (uint64, error) { return t.prev.Index + 1, nil }
func (t *tail) LastIndex() (uint64, error)  { return t.last(), nil }

func (t *tail) last() uint64 { return t.prev.Index + uint64(len(t.entries)) }

func (t *tail) Term(i uint64) (uint64, error) {
	switch {
	case i < t.prev.Index:
		return 0, raft.ErrCompacted
	case i == t.prev.Index:
		return t.prev.Term, nil
	case i > t.last():
		return 0, raft.ErrUnavailable
	}
	return t.entries[i-t.prev.Index-1].Term, nil
}

func (t *tail) Entries(lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	switch {
	case lo <= t.prev.Index:
		return nil, raft.ErrCompacted
	case hi > t.last()+1:
		return nil, raft.ErrUnavailable
	}
	all := t.entries[lo-t.prev.Index-1 : hi-t.prev.Index-1]
	size := uint64(0)
	for i := range all {
		if size += uint64(all[i].Size()); i > 0 && size > maxSize {
			all = all[:i]
			break
		}
	}
	return all[:len(all):len(all)], nil
}

func (t *tail) Snapshot() (raftpb.Snapshot, error) { return t.snapshot() }

// append adds entries, in place of those with the same indexes and all after them.
func (t *tail) append(all []raftpb.Entry) {
	for len(all) > 0 && all[0].Index <= t.prev.Index {
		all = all[1:]
	}
	if len(all) == 0 {
		return
	}
	if n := int(all[0].Index - t.prev.Index - 1); n < len(t.entries) {
		for i := range t.entries[n:] {
			t.bytes -= sizeOf(&t.entries[n+i])
		}
		t.entries = t.entries[:n:n]
	}
	t.entries = append(t.entries, all...)
	for i := range all {
		t.bytes += sizeOf(&all[i])
	}
}

// trim removes entries from the front, up to an index, while there are more than limit bytes.
func (t *tail) trim(limit int, upTo uint64) {
	n := 0
	for n < len(t.entries) && t.bytes > limit && t.entries[n].Index <= upTo {
		e := &t.entries[n]
		t.prev = Position{e.Index, e.Term}
		t.bytes -= sizeOf(e)
		t.dead += sizeOf(e)
		n++
	}
	t.entries = t.entries[n:]
	if t.dead > limit/4 { // the array keeps what was removed
		t.entries = append(make([]raftpb.Entry, 0, 2*len(t.entries)), t.entries...)
		t.dead = 0
	}
}

// reset begins anew behind a snapshot.
func (t *tail) reset(p Position) {
	t.prev, t.entries, t.bytes, t.dead = p, nil, 0, 0
}
