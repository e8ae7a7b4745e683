package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"clustermap/chp/commit"
)

// A message on the wire has these frames, numbers in network order:
//
//	head      version 1 | kind 1 | flags 1 | cluster 16 | from 8 | to 8 | stream 8 | part 8,
//	          then the message of raft, as a raftpb.Message whose entries have no data
//	entry...  the data of each entry of raft; of a part of a snapshot: term 8, then the data;
//	          of a note: the note
//
// The data of entries are frames of their own so that neither side copies them into or out of
// another buffer.
const (
	wireVersion = 1
	wireHead    = 3 + 16 + 4*8

	flagLast   = 1
	flagFailed = 2
	flagRaft   = 4
	flagEntry  = 8
)

// encode returns the frames of a message. They refer to the data of its entries.
func encode(m *Message, cluster ID, frames [][]byte) ([][]byte, error) {
	frames = frames[:0]
	flags := byte(0)
	set := func(bit byte, on bool) {
		if on {
			flags |= bit
		}
	}
	set(flagLast, m.Last)
	set(flagFailed, m.Failed)
	set(flagRaft, m.Kind == KindRaft || m.Kind == KindPart && m.Part == 0)
	set(flagEntry, m.Kind == KindPart && !m.Last)
	b := make([]byte, 0, wireHead+128)
	b = append(b, wireVersion, m.Kind, flags)
	b = append(b, cluster[:]...)
	for _, n := range []uint64{m.From, m.To, m.Stream, m.Part} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	frames = append(frames, nil)
	if flags&flagRaft != 0 {
		r := m.Raft
		if len(r.Entries) > 0 {
			bare := make([]raftpb.Entry, len(r.Entries))
			for i := range r.Entries {
				bare[i] = r.Entries[i]
				bare[i].Data = nil
				frames = append(frames, r.Entries[i].Data)
			}
			r.Entries = bare
		}
		head, err := r.Marshal()
		if err != nil {
			return nil, err
		}
		b = append(b, head...)
	}
	frames[0] = b
	if flags&flagEntry != 0 {
		e := binary.BigEndian.AppendUint64(make([]byte, 0, 8+headBytes+m.Entry.RecordBytes()), m.Entry.Epoch)
		frames = append(frames, appendData(e, &m.Entry))
	}
	if m.Kind == KindNote {
		frames = append(frames, m.Note)
	}
	return frames, nil
}

var errWire = errors.New("cluster: invalid message")

// errStranger is the error of a message of another cluster.
var errStranger = errors.New("cluster: a message of a stranger")

// decode parses the frames of a message, which it keeps.
func decode(frames [][]byte, cluster ID) (*Message, error) {
	if len(frames) == 0 || len(frames[0]) < wireHead || len(frames[0]) > maxHeadBytes {
		return nil, errWire
	}
	b := frames[0]
	if b[0] != wireVersion {
		return nil, &commit.FormatError{What: "a message of another node", Unit: "protocol", Version: uint32(b[0]), Newest: wireVersion}
	}
	if ID(b[3:]) != cluster {
		return nil, fmt.Errorf("%w: node %d belongs to another cluster, or was started with other first nodes", errStranger, binary.BigEndian.Uint64(b[19:]))
	}
	flags := b[2]
	m := &Message{Kind: b[1], Last: flags&flagLast != 0, Failed: flags&flagFailed != 0}
	for i, to := range []*uint64{&m.From, &m.To, &m.Stream, &m.Part} {
		*to = binary.BigEndian.Uint64(b[19+8*i:])
	}
	b, frames = b[wireHead:], frames[1:]
	if flags&flagRaft != 0 {
		if err := m.Raft.Unmarshal(b); err != nil {
			return nil, errWire
		}
		if len(frames) < len(m.Raft.Entries) || m.Raft.From != m.From || m.Raft.To != m.To {
			return nil, errWire
		}
		for i := range m.Raft.Entries {
			if m.Raft.Entries[i].Data = frames[i]; len(frames[i]) > maxEntryBytes {
				return nil, errWire
			}
		}
		frames = frames[len(m.Raft.Entries):]
	}
	if flags&flagEntry != 0 {
		if len(frames) == 0 || len(frames[0]) < 8+headBytes || len(frames[0]) > 8+maxEntryBytes {
			return nil, errWire
		}
		e, err := stored(&raftpb.Entry{Term: binary.BigEndian.Uint64(frames[0]), Data: frames[0][8:]})
		if err != nil {
			return nil, errWire
		}
		m.Entry, frames = e, frames[1:]
	}
	if m.Kind == KindNote {
		if len(frames) == 0 || len(frames[0]) > maxEntryBytes {
			return nil, errWire
		}
		m.Note, frames = frames[0], frames[1:]
	}
	if len(frames) > 0 || m.Kind == 0 || m.Kind > KindNote || m.Kind == KindRaft && flags&flagRaft == 0 {
		return nil, errWire
	}
	return m, nil
}
