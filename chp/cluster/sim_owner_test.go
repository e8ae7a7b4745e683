package cluster

import (
	"encoding/binary"
	"fmt"
	"iter"

	"clustermap/chp/commit"
)

// simOwner is the state of a node of a simulation: what it has applied, as a list of values, each
// proposed once.
type simOwner struct {
	sim    *sim
	node   *simNode
	values []uint64 // applied, in order
	at     []Position
}

func (o *simOwner) Committed(all []Committed) {
	for _, e := range all {
		v := binary.BigEndian.Uint64(e.Records)
		at := Position{e.Index, e.Epoch}
		o.values = append(o.values, v)
		o.at = append(o.at, at)
		o.sim.checkApplied(o.node, len(o.values)-1, v, at)
		if e.Own {
			o.sim.checkOwn(o.node, at, v, "committed")
		}
	}
}

func (o *simOwner) Lost(all []Position, known bool) {
	for _, p := range all {
		what := "lost"
		if !known {
			what = "unknown"
		}
		o.sim.checkOwn(o.node, p, 0, what)
	}
}

func (o *simOwner) Changed(s Status) {
	o.node.status = s
	o.sim.note("%v: %s in term %d, leader %d, leading %v", o.node, s.Role, s.Term, s.Leader, s.Leading)
	if s.Leading {
		o.sim.checkLeads(o.node, s.Term)
	}
}

func (o *simOwner) Image() (Image, error) {
	return &simImage{values: o.values[:len(o.values):len(o.values)], at: o.at[:len(o.at):len(o.at)]}, nil
}

func (o *simOwner) Restore(s *Snapshot) error {
	o.values, o.at = nil, nil
	err := s.Entries(func(e commit.Entry) error {
		for b := e.Records; len(b) > 0; b = b[24:] {
			o.values = append(o.values, binary.BigEndian.Uint64(b))
			o.at = append(o.at, Position{binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])})
		}
		return nil
	})
	o.sim.note("%v: restored %d values at %v", o.node, len(o.values), s.At)
	if err == nil && uint64(len(o.values)) != s.Sequence {
		err = fmt.Errorf("%d values, want %d", len(o.values), s.Sequence)
	}
	o.sim.checkRestored(o.node, s.At)
	return err
}

// simImage is a copy of the values.
type simImage struct {
	values []uint64
	at     []Position
}

func (i *simImage) Sequence() uint64 { return uint64(len(i.values)) }
func (i *simImage) Release()         {}

func (i *simImage) Entries() iter.Seq[commit.Entry] {
	return func(yield func(commit.Entry) bool) {
		const portion = 16
		for from := 0; from < len(i.values); from += portion {
			var b []byte
			for k := from; k < min(from+portion, len(i.values)); k++ {
				b = binary.BigEndian.AppendUint64(b, i.values[k])
				b = binary.BigEndian.AppendUint64(b, i.at[k].Index)
				b = binary.BigEndian.AppendUint64(b, i.at[k].Term)
			}
			if !yield(commit.Entry{Records: b, Count: uint32(len(b) / 24)}) {
				return
			}
		}
	}
}
