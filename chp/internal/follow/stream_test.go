package follow

import (
	"errors"
	"fmt"
	"testing"

	"clustermap/chp/internal/subtree"
	"clustermap/internal/buf"
	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"
)

// pub is a KVPUB or KVSYNC for tests: an empty value deletes the key.
type pub struct {
	key   string
	seq   int64
	value string
}

// hugz is a HUGZ with a sequence.
func hugz(seq int64) pub { return pub{kvmsg.KeyHUGZ, seq, ""} }

// wireBatch puts messages into wire form with spans as a session's intake
// leaves them.
func wireBatch(t testing.TB, messages ...pub) ([]byte, []buf.Span) {
	t.Helper()
	var wire []byte
	var spans []buf.Span
	for _, p := range messages {
		start := len(wire)
		wire = kvmsg.AppendRecord(wire, []byte(p.key), p.seq, nil, nil, []byte(p.value))
		spans = append(spans, buf.Span{Start: uint32(start), End: uint32(len(wire))})
	}
	in := &intake{command: kvmsg.KindHUGZ, tag: hugzTag, refused: func(error) {}}
	spans = in.sift(wire, spans)
	if len(spans) != len(messages) {
		t.Fatalf("%d messages of %d are sound", len(spans), len(messages))
	}
	return wire, spans
}

// accepted runs messages through s and returns those that are to be applied,
// as "key@seq".
func accepted(t *testing.T, s *stream, messages ...pub) ([]string, error) {
	t.Helper()
	wire, spans := wireBatch(t, messages...)
	spans, err := s.filter(wire, spans)
	var out []string
	for _, span := range spans {
		r := kvmsg.Record(wire[span.Start:span.End])
		out = append(out, fmt.Sprintf("%s@%d", r.Key(), r.Seq()))
	}
	return out, err
}

func wantAdmitted(t *testing.T, s *stream, want string, messages ...pub) {
	t.Helper()
	got, err := accepted(t, s, messages...)
	if err != nil || fmt.Sprint(got) != "["+want+"]" {
		t.Errorf("accepted %v, %v; want [%s]", got, err, want)
	}
}

func wantGap(t *testing.T, err error, after, next int64) {
	t.Helper()
	var gap *GapError
	if !errors.As(err, &gap) || gap.After != after || gap.Next != next {
		t.Errorf("error %v, want a gap after %d before %d", err, after, next)
	}
}

func TestStreamDiscardsStale(t *testing.T) {
	t.Parallel()
	all := subtree.New(nil)
	s := newStream(&all, false)
	wantAdmitted(t, s, "a@5", pub{"a", 5, "x"})
	must(t, s.join([]int64{7}))
	// Up to the KTHXBAI everything is in the snapshot, and updates that come twice or out
	// of order are discarded.
	wantAdmitted(t, s, "c@9 d@20", pub{"a", 6, "x"}, pub{"b", 7, "x"}, pub{"c", 9, "x"}, pub{"c", 9, "y"}, pub{"c", 8, "z"}, pub{"d", 20, "x"})
	wantAdmitted(t, s, "", pub{"d", 20, "x"}, pub{"d", 1, "x"}, pub{"d", -1, "x"})
	if s.sequence() != 20 || s.stale != 7 {
		t.Errorf("sequence %d, stale %d", s.sequence(), s.stale)
	}
}

func TestStreamCutsOfSubtrees(t *testing.T) {
	t.Parallel()
	requests := subtree.New([]string{"/a/", "/b/"})
	s := newStream(&requests, true)
	wantAdmitted(t, s, "/a/1@10", pub{"/a/1", 10, "x"})
	must(t, s.join([]int64{11, 14}))
	if s.sequence() != 11 || s.complete() {
		t.Errorf("sequence %d, complete: %v; want 11, since updates of /a/ up to 14 are missing", s.sequence(), s.complete())
	}
	wantAdmitted(t, s, "/a/1@12 /a/1@13 /a/1@15 /b/1@16",
		pub{"/a/1", 11, "x"}, pub{"/b/1", 11, "x"}, pub{"/a/1", 12, "x"}, pub{"/b/1", 12, "x"}, pub{"/a/1", 13, "x"},
		pub{"/b/1", 14, "x"}, pub{"/a/1", 15, "x"}, pub{"/b/1", 16, "x"})
	for key, want := range map[string]bool{"/a/x": false, "/b/x": true} {
		if got := s.covered([]byte(key), 13); got != want {
			t.Errorf("%s at 13 covered by a snapshot: %v, want %v", key, got, want)
		}
	}
}

func TestStreamSequencesOfAnyValue(t *testing.T) {
	t.Parallel()
	all := subtree.New(nil)
	s := newStream(&all, false)
	must(t, s.join([]int64{-10}))
	wantAdmitted(t, s, "a@-9 a@0 a@3", pub{"a", -11, "x"}, pub{"a", -9, "x"}, pub{"a", 0, "x"}, pub{"a", 3, "x"})
}

func TestStreamGapsOfOurServer(t *testing.T) {
	t.Parallel()
	all := subtree.New(nil)

	s := newStream(&all, true)
	got, err := accepted(t, s, pub{"a", 5, "x"}, pub{"b", 6, "x"}, pub{"c", 8, "x"})
	if wantGap(t, err, 6, 8); fmt.Sprint(got) != "[a@5 b@6]" {
		t.Errorf("accepted %v before the gap", got)
	}

	s = newStream(&all, true)
	must(t, s.join([]int64{7}))
	wantAdmitted(t, s, "a@8 b@9", pub{"z", 6, "x"}, pub{"z", 7, "x"}, pub{"a", 8, "x"}, pub{"b", 9, "x"})
	wantAdmitted(t, s, "", pub{"b", 9, "x"})

	s = newStream(&all, true)
	must(t, s.join([]int64{7}))
	_, err = accepted(t, s, pub{"a", 9, "x"})
	wantGap(t, err, 7, 9)

	s = newStream(&all, true)
	wantAdmitted(t, s, "a@9", pub{"a", 9, "x"})
	wantGap(t, s.join([]int64{7}), 7, 9)

	s = newStream(&all, true)
	wantAdmitted(t, s, "a@9", pub{"a", 9, "x"})
	must(t, s.join([]int64{8}))
}

func TestStreamHUGZOfOurServer(t *testing.T) {
	t.Parallel()
	all := subtree.New(nil)

	s := newStream(&all, true)
	wantAdmitted(t, s, "", hugz(5))
	wantAdmitted(t, s, "", hugz(7))
	must(t, s.join([]int64{7}))
	wantAdmitted(t, s, "a@8", hugz(7), pub{"a", 8, "x"}, hugz(8), hugz(3))
	_, err := accepted(t, s, hugz(9))
	wantGap(t, err, 8, 9)

	s = newStream(&all, true)
	wantAdmitted(t, s, "", hugz(8))
	wantGap(t, s.join([]int64{7}), 7, 8)

	s = newStream(&all, true)
	_, err = accepted(t, s, pub{"a", 5, "x"}, hugz(6))
	wantGap(t, err, 5, 6)
}

func TestStreamHUGZOfOthersMeansNothing(t *testing.T) {
	t.Parallel()
	all, part := subtree.New(nil), subtree.New([]string{"/a/"})
	for _, s := range []*stream{newStream(&all, false), newStream(&part, false)} {
		must(t, s.join([]int64{7}))
		wantAdmitted(t, s, "/a/1@8 /a/1@20", hugz(3472328296227680304), pub{"/a/1", 8, "x"}, hugz(100), pub{"/a/1", 20, "x"})
		if s.sequence() != 20 {
			t.Errorf("sequence %d, want 20", s.sequence())
		}
	}
}

// A client of subtrees has all of them up to the sequence in a HUGZ of a server of this package.
func TestStreamHUGZAdvancesAClientOfSubtrees(t *testing.T) {
	t.Parallel()
	part := subtree.New([]string{"/a/"})
	s := newStream(&part, true)
	wantAdmitted(t, s, "/a/1@9", hugz(8), pub{"/a/1", 9, "x"})
	must(t, s.join([]int64{12}))
	for _, step := range []struct {
		hugz, want int64
	}{{10, 12}, {14, 14}, {13, 14}} {
		wantAdmitted(t, s, "", hugz(step.hugz))
		if got := s.sequence(); got != step.want {
			t.Errorf("after HUGZ %d the sequence is %d, want %d", step.hugz, got, step.want)
		}
	}
	wantAdmitted(t, s, "/a/1@15", pub{"/a/1", 14, "x"}, pub{"/a/1", 15, "x"}, hugz(15))
}

// A key whose tag is by chance the mark of a HUGZ is an update all the same.
func TestStreamTagIsAHint(t *testing.T) {
	t.Parallel()
	all := subtree.New(nil)
	s := newStream(&all, false)
	wire, spans := wireBatch(t, pub{"a", 5, "x"})
	spans[0].Tag = hugzTag
	if spans, err := s.filter(wire, spans); err != nil || len(spans) != 1 {
		t.Errorf("%d accepted, %v", len(spans), err)
	}
}

func TestStreamAllocatesNothing(t *testing.T) {
	all := subtree.New(nil)
	s := newStream(&all, false)
	must(t, s.join([]int64{1}))
	wire, spans := wireBatch(t, pub{"a", 5, "x"}, pub{"b", 6, "x"}, hugz(6))
	scratch := make([]buf.Span, 0, len(spans))
	if n := testenv.Allocs(0, 100, func() {
		s.last = 0
		if kept, err := s.filter(wire, append(scratch, spans...)); err != nil || len(kept) != 2 {
			t.Fatal(len(kept), err)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

var must = testenv.Must
