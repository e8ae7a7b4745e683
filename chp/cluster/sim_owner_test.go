package cluster

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
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
	sums   []uint32 // of their bytes
}

// valueBytes is the size of a value in an image.
const valueBytes = 28

// add adds the value of an entry.
func (o *simOwner) add(e *commit.Entry) (v uint64, at Position, sum uint32) {
	v, at, sum = binary.BigEndian.Uint64(e.Records), Position{e.Index, e.Epoch}, crc32.ChecksumIEEE(e.Records)
	o.values, o.at, o.sums = append(o.values, v), append(o.at, at), append(o.sums, sum)
	return v, at, sum
}

// load replaces the values by those of a snapshot.
func (o *simOwner) load(s *Snapshot) error {
	o.values, o.at, o.sums = nil, nil, nil
	return s.Entries(func(e commit.Entry) error {
		for b := e.Records; len(b) > 0; b = b[valueBytes:] {
			o.values = append(o.values, binary.BigEndian.Uint64(b))
			o.at = append(o.at, Position{binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])})
			o.sums = append(o.sums, binary.BigEndian.Uint32(b[24:]))
		}
		return nil
	})
}

func (o *simOwner) Committed(all []Committed) {
	for _, e := range all {
		v, at, sum := o.add(&e.Entry)
		o.sim.checkApplied(o.node, len(o.values)-1, v, at, sum)
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
	n := len(o.values)
	return &simImage{values: o.values[:n:n], at: o.at[:n:n], sums: o.sums[:n:n]}, nil
}

func (o *simOwner) Restore(s *Snapshot) error {
	err := o.load(s)
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
	sums   []uint32
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
				b = binary.BigEndian.AppendUint32(b, i.sums[k])
			}
			if !yield(commit.Entry{Records: b, Count: uint32(len(b) / valueBytes)}) {
				return
			}
		}
	}
}
