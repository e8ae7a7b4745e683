package chp

import (
	"fmt"
	"slices"
	"testing"

	"clustermap/chp/commit"
	"clustermap/internal/kvmsg"
)

// TestReigns: two servers find their common updates by the newest reign that both know,
// however many there were.
func TestReigns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b []reign
		want int64
	}{
		{[]reign{{1, 10}}, []reign{{1, 10}}, 10},
		{[]reign{{1, 10}}, []reign{{1, 7}, {2, 20}}, 7},
		{[]reign{{1, 7}, {2, 20}}, []reign{{1, 10}}, 7},
		{[]reign{{1, 7}, {2, 20}, {4, 30}}, []reign{{1, 7}, {2, 15}, {3, 40}}, 15},
		{[]reign{{2, 20}}, []reign{{1, 7}, {3, 40}}, 0},
		{[]reign{{0, 0}}, []reign{{0, 0}}, 0},
	} {
		if got := common(c.a, c.b); got != c.want {
			t.Errorf("%v and %v: %d, want %d", c.a, c.b, got, c.want)
		}
	}
	var q struct{ reigns reigns }
	for i := range uint64(3 * maxReigns) {
		q.reigns.advance(i+1, int64(10*i+5))
		q.reigns.advance(i+1, int64(10*i+10))
	}
	h := q.reigns.history()
	if n := len(h); n != maxReigns || h[n-1] != (reign{3 * maxReigns, 30 * maxReigns}) || h[n-2] != (reign{3*maxReigns - 1, 30*maxReigns - 10}) {
		t.Errorf("%d reigns, the last ones %v", n, h[n-2:])
	}
	b := baseHead{run: 3, mapID: [mapIDSize]byte{1, 2}, reigns: h}
	if got, ok := parseBaseHead(b.append(nil)); !ok || got.run != b.run || got.mapID != b.mapID || !slices.Equal(got.reigns, h) {
		t.Errorf("%v, %v", got, ok)
	}
	for _, bad := range []string{"", "0123456789abcdef", "0123456789abcdef01234567", "0123456789abcdef0123456789", string(appendReigns(make([]byte, 8+mapIDSize), []reign{{1, -1}})), string(make([]byte, 8+mapIDSize+(maxReigns+1)*reignSize))} {
		if _, ok := parseBaseHead([]byte(bad)); ok {
			t.Errorf("%d bytes are taken for a BASE", len(bad))
		}
	}
}

// TestReignNumbers: the reign of a later update has the higher number, and interims, of
// which the numbers stay within the term, come between.
func TestReignNumbers(t *testing.T) {
	t.Parallel()
	var q struct{ reigns reigns }
	for i := range uint64(1000) {
		before := q.reigns.newest
		q.reigns.begin(i % 2 * i)
		if i%3 > 0 { // it expires something first
			q.reigns.advance(q.reigns.present, before.last+1)
			if got := q.reigns.accepted(); i > 0 && compareReigns(got, before) != 0 {
				t.Fatalf("an interim of the server counts: %v after %v", got, before)
			}
		}
		q.reigns.count()
		q.reigns.advance(q.reigns.present, before.last+2)
		got := q.reigns.accepted()
		if got != q.reigns.newest || termOf(got.id) != i+1 || compareReigns(got, before) <= 0 || compareReigns(before, got) >= 0 || got.id <= before.id {
			t.Fatalf("%x after %x", got, before)
		}
		q.reigns.count()
		if q.reigns.present != got.id {
			t.Fatal("a second update begins another reign")
		}
	}
	// As many interims, of a server that restarts again and again, as anybody sees.
	id := uint64(reignRandom)
	for range 100 {
		next := interimAfter(id, 0)
		if next <= id || termOf(next) != 0 {
			t.Fatalf("%x after %x", next, id)
		}
		id = next
	}
}

// TestCompareReigns: the later term counts, within a reign the sequence, of one term the
// server that took over, of two that did the later one, and then who began first.
func TestCompareReigns(t *testing.T) {
	t.Parallel()
	const term = 1 << reignBits
	for _, c := range []struct {
		what string
		a, b reign
		want int
	}{
		{"nothing", reign{}, reign{}, 0},
		{"something", reign{term, 1}, reign{}, 1},
		{"of a server that was not of a pair", reign{0, 1}, reign{}, 1},
		{"the same", reign{term, 7}, reign{term, 7}, 0},
		{"more of a reign", reign{term, 8}, reign{term, 7}, 1},
		{"a later term, though its sequence is lower", reign{2 * term, 1}, reign{term, 9}, 1},
		{"one term, one took over", reign{term | reignTook, 1}, reign{term + 1, 9}, 1},
		{"one term, one began earlier", reign{term + 1, 1}, reign{term + 2, 9}, 1},
		{"one term, both took over", reign{term | reignTook, 1}, reign{term | reignTook | 5, 9}, 1},
		{"one term, one took over later", reign{reignAfter(0, 8), 1}, reign{reignAfter(0, 7), 9}, 1},
		{"one term, one that began later took over later", reign{reignAfter(0, 8), 9}, reign{reignAfter(0, 7), 1}, 1},
		{"one term, one took over later, and its bits begin again", reign{reignAfter(0, 5<<tookBits+1), 9}, reign{reignAfter(0, 5<<tookBits-1), 1}, 1},
		{"one term, as far apart as cannot be", reign{reignAfter(0, 1<<(tookBits-1)), 1}, reign{reignAfter(0, 1<<tookBits), 9}, 1},
	} {
		if a, b := compareReigns(c.a, c.b), compareReigns(c.b, c.a); a != c.want || b != -c.want {
			t.Errorf("%s: %d and %d", c.what, a, b)
		}
	}
}

// TestImpossibleReigns: terms and sequences after which there would be no others are
// refused, wherever they come from.
func TestImpossibleReigns(t *testing.T) {
	t.Parallel()
	for _, r := range []reign{{1<<64 - 1, 1}, {(maxTerm + 1) << reignBits, 1}, {1, -1}, {1, 1<<63 - 1}, {1, maxSequence + 1}} {
		if _, ok := parseReigns(appendReigns(nil, []reign{r})); ok {
			t.Errorf("a history has %x", r)
		}
		if validStanding(appendStanding(nil, standing{accepted: r, run: 1})) {
			t.Errorf("a state message has %x", r)
		}
		h := batchHead{reign: r.id, first: r.last, count: 1}
		if _, ok := parseBatchHead(h.append(nil)); ok {
			t.Errorf("a batch has %x", r)
		}
	}
	h := batchHead{reign: 1, first: maxSequence, count: 1<<32 - 1}
	if _, ok := parseBatchHead(h.append(nil)); ok {
		t.Error("a batch ends above all sequences")
	}
}

// TestCheckpointKeepsHistory: after a restart on a checkpoint a server knows its last
// update, though that was a deletion, and all reigns.
func TestCheckpointKeepsHistory(t *testing.T) {
	t.Parallel()
	for _, keys := range []int{3, 0} {
		for _, more := range []bool{false, true} {
			t.Run(fmt.Sprintf("keys=%d/more=%v", keys, more), func(t *testing.T) {
				t.Parallel()
				ctx := testContext(t)
				dir := t.TempDir()
				o := ServerOptions{Log: openLog(t, dir), Sync: commit.Never()}
				s, stop := serveUntil(t, o)
				c := startClient(t, s, ClientOptions{})
				q := &s.sequencer
				set := func(reign uint64) {
					q.mu.Lock()
					q.state.terms.present = reign
					q.mu.Unlock()
					for i := range keys {
						must(t, c.Set(ctx, fmt.Sprintf("/%d", i), []byte("v")))
					}
					must(t, c.Set(ctx, "/deleted", []byte("v")))
					_, err := c.DeleteSync(ctx, "/deleted")
					must(t, err)
				}
				for reign := range uint64(3) {
					set(reign)
				}
				must(t, q.checkpoint(ctx))
				if more {
					set(2)
					set(7)
				}
				want := historyOf(s)
				if len(want) < 3 {
					t.Fatalf("reigns %v", want)
				}
				must(t, c.Close())
				stop()
				o.Log = openLog(t, dir)
				s, _ = serveUntil(t, o)
				if got := historyOf(s); !slices.Equal(got, want) {
					t.Errorf("reigns %v, want %v", got, want)
				}
				if s.Len() != keys || s.Sequence() < want[len(want)-1].last {
					t.Errorf("%d keys, sequence %d", s.Len(), s.Sequence())
				}
			})
		}
	}
}

// TestPairReportsUnknownReign: the updates of a reign of which the active server has
// never heard are reported before they are given up.
func TestPairReportsUnknownReign(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	dirs := [2]string{t.TempDir(), t.TempDir()}
	reported := make(chan string, 100)
	po.Pair.OnDiverged = func(d Divergence) {
		for e := range d.Entries {
			reported <- string(e.Key)
		}
	}
	start := func(i int) pairServer {
		o := []ServerOptions{po, bo}[i]
		o.Log = openLog(t, dirs[i])
		return startPairServer(t, o)
	}
	c := pairClient(t, po, bo)
	set := func(key string) {
		t.Helper()
		_, err := c.SetSync(ctx, key, []byte("v"))
		must(t, err)
	}
	primary, backup := start(0), start(1)
	set("/both")
	eventually(t, "the backup follows", primary.inSync)
	set("/both/2")
	// Each serves alone, and then they meet. The one that took over continues.
	primary.crash()
	set("/backup/1")
	set("/backup/2")
	backup.crash()
	primary = start(0)
	set("/primary/1")
	set("/primary/2")
	_ = start(1)
	eventually(t, "the primary has the backup's map", func() bool {
		_, ok := primary.Get("/backup/2")
		return ok
	})
	close(reported)
	var got []string
	for key := range reported {
		got = append(got, key)
	}
	slices.Sort(got)
	if want := []string{"/primary/1", "/primary/2"}; !slices.Equal(got, want) {
		t.Errorf("reported %v, want %v", got, want)
	}
}

// TestPairReportsOnce: a divergence is reported once, however often the copy fails.
func TestPairReportsOnce(t *testing.T) {
	t.Parallel()
	_, bo := pairOptions(t)
	reports := 0
	bo.Pair.OnDiverged = func(Divergence) { reports++ }
	s, err := NewServer(bo)
	must(t, err)
	defer func() { must(t, s.Close()) }()
	q := &s.sequencer
	enterKey(t, q, "/lost")
	h := baseHead{mapID: q.state.id, reigns: []reign{{5, 1}}}
	for range 3 {
		s.reportDivergence(&h)
	}
	if reports != 1 {
		t.Errorf("%d reports, want 1", reports)
	}
	enterKey(t, q, "/lost/2")
	s.reportDivergence(&h)
	if reports != 2 {
		t.Errorf("%d reports, want 2", reports)
	}
}

func historyOf(s *Server) []reign {
	s.sequencer.mu.Lock()
	defer s.sequencer.mu.Unlock()
	return s.sequencer.state.terms.history()
}

// enterKey sets a key.
func enterKey(t testing.TB, q *sequencer, key string) {
	t.Helper()
	wire := kvmsg.AppendRecord(nil, []byte(key), 0, nil, nil, []byte("v"))
	spans, ok := kvmsg.SpansOf(wire, nil)
	if !ok {
		t.Fatal("not a record")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.apply(&entry{wire: wire, spans: spans})
}
