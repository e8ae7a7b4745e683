package chp

import (
	"slices"
	"testing"
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
	if got, ok := parseReigns(appendReigns(nil, h)); !ok || !slices.Equal(got, h) {
		t.Errorf("%v, %v", got, ok)
	}
	for _, bad := range []string{"", "0123456789abcdef0", string(appendReigns(nil, []reign{{1, -1}})), string(make([]byte, (maxReigns+1)*reignSize))} {
		if _, ok := parseReigns([]byte(bad)); ok {
			t.Errorf("%d bytes are taken for reigns", len(bad))
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
