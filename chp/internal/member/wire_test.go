package member

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"clustermap/chp/internal/journal/raft"
	"clustermap/chp/internal/ledger"
	"clustermap/internal/kvmsg"
)

// TestNotes: an item and an answer come out as they went in, and parts of them do not come out at all.
func TestNotes(t *testing.T) {
	t.Parallel()
	p := place{kind: kindRequests, term: 1, run: 2, stream: 3, number: 4}
	s := sent{client: ledger.ID{5}, generation: 6, by: "somebody", body: []byte("body")}
	note := appendSent(appendPlace(nil, noteItem, p), &s)
	kind, gotPlace, rest, ok := parsePlace(note)
	got, parsed := parseSent(rest)
	if kind != noteItem || gotPlace != p || !ok || !parsed || got.client != s.client || got.generation != s.generation || got.by != s.by || !bytes.Equal(got.body, s.body) {
		t.Errorf("%c %+v %+v, %v %v", kind, gotPlace, got, ok, parsed)
	}
	for n := range len(note) - len(s.body) {
		if _, _, rest, ok := parsePlace(note[:n]); ok {
			if _, ok = parseSent(rest); ok {
				t.Errorf("the first %d bytes are taken for an item", n)
			}
		}
	}
}

// TestAnswers: what is refused is found in what was sent, with the reason, and a malformed answer refuses nothing.
func TestAnswers(t *testing.T) {
	t.Parallel()
	var records []byte
	for _, key := range []string{"/a", "/b", "/c"} {
		records = kvmsg.AppendRecord(records, []byte(key), 0, nil, nil, []byte("v"))
	}
	repeated, unfit := parseUpdated([]byte{1, byte(kvmsg.ReasonLimit), 0, 0, 2, 0, 0, 0, 9, 1}, records)
	if !repeated || len(unfit) != 1 || kvmsg.Reason(unfit[0].Tag) != kvmsg.ReasonLimit || string(kvmsg.Record(records[unfit[0].Start:unfit[0].End]).Key()) != "/c" {
		t.Errorf("%v, %v", repeated, unfit)
	}
	if repeated, unfit := parseUpdated(nil, records); repeated || len(unfit) > 0 {
		t.Errorf("%v, %v", repeated, unfit)
	}
	if got := parseLeft([]byte{0, 0, 0, 0, 0, 0, 0, 7, 1}); !slices.Equal(got, []time.Duration{7}) {
		t.Error(got)
	}
}

// FuzzNotes: a member takes any bytes of another one.
func FuzzNotes(f *testing.F) {
	f.Add(appendSent(appendPlace(nil, noteItem, place{kind: kindUpdates, number: 1}), &sent{by: "x", body: []byte("y")}))
	f.Add(appendPlace(nil, noteAnswer, place{run: 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := New(Options{Journal: new(raft.Journal)})
		m.Note(1, b) // before it has a node
		m.Attach(&node{w: &world{members: []raft.Member{{Node: 1}}}})
		m.Note(1, b)
		m.Note(1, b)
	})
}

// TestMissingNodes: who hears no leader says which nodes it does not hear either, and since when.
func TestMissingNodes(t *testing.T) {
	t.Parallel()
	all := []raft.Member{{Node: 1, Address: "a"}, {Node: 2, Address: "b"}, {Node: 3, Address: "c", Silence: -1}, {Node: 4, Address: "d", Silence: 12 * time.Second}}
	for n, want := range map[int]string{
		4: "node 3 at c since the start of this one, node 4 at d for 12s",
		2: "none: the nodes hear each other, and elect no leader",
	} {
		if got := missing(all[:n], 1); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
