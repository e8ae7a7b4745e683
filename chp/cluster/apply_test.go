package cluster

import (
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"clustermap/chp/commit"
)

// noter is an owner that notes what it is told.
type noter struct {
	Owner
	told []string
}

func (o *noter) Committed(all []Committed) {
	for _, e := range all {
		o.told = append(o.told, fmt.Sprintf("committed %d own %v", e.Index, e.Own))
	}
}

func (o *noter) Lost(all []Position, known bool) {
	for _, p := range all {
		o.told = append(o.told, fmt.Sprintf("lost %d known %v", p.Index, known))
	}
}

// TestLossIsToldInOrder shows that an owner hears that a proposal is lost behind what was committed before it: it takes
// a loss for one of all that it has proposed and not heard of.
func TestLossIsToldInOrder(t *testing.T) {
	_, n := scenario(t)
	o := &noter{}
	a := applier{core: n.core, mu: nothing{}, owner: o}
	at := func(index, term uint64) raftpb.Entry {
		return raftpb.Entry{Index: index, Term: term, Data: appendData(nil, &commit.Entry{Count: 1, Records: make([]byte, 8)})}
	}
	for i := range uint64(3) {
		n.core.pending.add(Position{10 + i, 5}, 1)
	}
	a.entries([]raftpb.Entry{at(10, 5), at(11, 6), at(12, 6)})
	want := []string{"committed 10 own true", "lost 11 known true", "lost 12 known true", "committed 11 own false", "committed 12 own false"}
	if !slices.Equal(o.told, want) {
		t.Errorf("told %q, want %q", o.told, want)
	}
}
