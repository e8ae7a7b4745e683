package state

import (
	"slices"
	"testing"
)

// TestReigns: two servers find their common updates by the newest reign that both know,
// however many there were.
func TestReigns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b []Reign
		want int64
	}{
		{[]Reign{{1, 10}}, []Reign{{1, 10}}, 10},
		{[]Reign{{1, 10}}, []Reign{{1, 7}, {2, 20}}, 7},
		{[]Reign{{1, 7}, {2, 20}}, []Reign{{1, 10}}, 7},
		{[]Reign{{1, 7}, {2, 20}, {4, 30}}, []Reign{{1, 7}, {2, 15}, {3, 40}}, 15},
		{[]Reign{{2, 20}}, []Reign{{1, 7}, {3, 40}}, 0},
		{[]Reign{{0, 0}}, []Reign{{0, 0}}, 0},
	} {
		if got := Common(c.a, c.b); got != c.want {
			t.Errorf("%v and %v: %d, want %d", c.a, c.b, got, c.want)
		}
	}
	var q struct{ Reigns Reigns }
	for i := range uint64(3 * MaxReigns) {
		q.Reigns.Advance(i+1, int64(10*i+5))
		q.Reigns.Advance(i+1, int64(10*i+10))
	}
	h := q.Reigns.History()
	if n := len(h); n != MaxReigns || h[n-1] != (Reign{3 * MaxReigns, 30 * MaxReigns}) || h[n-2] != (Reign{3*MaxReigns - 1, 30*MaxReigns - 10}) {
		t.Errorf("%d reigns, the last ones %v", n, h[n-2:])
	}
	if got, ok := ParseReigns(AppendReigns(nil, h)); !ok || !slices.Equal(got, h) {
		t.Errorf("%v, %v", got, ok)
	}
	for _, bad := range []string{"", "0123456789abcdef0", string(AppendReigns(nil, []Reign{{1, -1}})), string(make([]byte, (MaxReigns+1)*ReignSize))} {
		if _, ok := ParseReigns([]byte(bad)); ok {
			t.Errorf("%d bytes are taken for reigns", len(bad))
		}
	}
}

// TestReignNumbers: the reign of a later update has the higher number, and interims, of
// which the numbers stay within the term, come between.
func TestReignNumbers(t *testing.T) {
	t.Parallel()
	var q struct{ Reigns Reigns }
	q.Reigns.Shared = true
	for i := range uint64(1000) {
		before := q.Reigns.Newest
		q.Reigns.Begin(i % 2 * i)
		if i%3 > 0 { // it expires something first
			q.Reigns.Advance(q.Reigns.Present, before.Last+1)
			if got := q.Reigns.Accepted(); i > 0 && Compare(got, before) != 0 {
				t.Fatalf("an interim of the server counts: %v after %v", got, before)
			}
		}
		q.Reigns.Count()
		q.Reigns.Advance(q.Reigns.Present, before.Last+2)
		got := q.Reigns.Accepted()
		if got != q.Reigns.Newest || TermOf(got.ID) != i+1 || Compare(got, before) <= 0 || Compare(before, got) >= 0 || got.ID <= before.ID {
			t.Fatalf("%x after %x", got, before)
		}
		q.Reigns.Count()
		if q.Reigns.Present != got.ID {
			t.Fatal("a second update begins another reign")
		}
	}
}

// TestTermsBeginWhenBothHaveTheMap: as long as only one server has had a map, its reigns are of
// term 0, in the order in which it accepted updates, and lower than all of a map that both
// have had. When the other one gets it the term begins, also within a reign.
func TestTermsBeginWhenBothHaveTheMap(t *testing.T) {
	t.Parallel()
	var r Reigns
	count := func() Reign {
		r.Count()
		r.Advance(r.Present, r.Newest.Last+1)
		return r.Accepted()
	}
	for i := range uint64(lastStint / firstStint) {
		before := r.Accepted()
		r.Begin(i % 2 * i)
		for range i % 3 { // it expires something first
			r.Advance(r.Present, r.Newest.Last+1)
			if got := r.Accepted(); i > 0 && got != before {
				t.Fatalf("an interim counts: %x after %x", got, before)
			}
		}
		got := count()
		if got.ID <= before.ID || Compare(got, before) <= 0 || Compare(before, got) >= 0 || TermOf(got.ID) != 0 || got.ID&ReignTook != 0 ||
			i > 0 && (got.ID^before.ID)&stintMap != 0 {
			t.Fatalf("%x after %x", got, before)
		}
		if Compare(got, Reign{1 << ReignBits, 1 << 40}) >= 0 {
			t.Fatalf("%x, which only one server has had, outranks a map of both", got)
		}
		if again := count(); again.ID != got.ID {
			t.Fatalf("a second update begins another reign: %x after %x", again, got)
		}
		for _, begins := range []uint64{1, 2} { // the reign goes on, or another one begins
			shared := r
			shared.Shared = true
			if begins == 2 {
				shared.Begin(7)
			}
			shared.Count()
			if TermOf(shared.Present) != begins {
				t.Fatalf("%x is not of term %d, though the other server has the map", shared.Present, begins)
			}
		}
	}
}

// TestMapOfOneServerBeginsNoTerm: however often a server starts with a map that the other one has
// never had, and whatever happens then, its map does not outrank one that both have had; and what
// its clients do continues it.
func TestMapOfOneServerBeginsNoTerm(t *testing.T) {
	t.Parallel()
	both := Reign{1 << ReignBits, 1 << 40}
	for name, updates := range map[string]func(start int) bool{
		"updates":              func(int) bool { return true },
		"expiry":               func(start int) bool { return start == 0 },
		"both, now and then":   func(start int) bool { return start%200 == 0 },
		"both, more and more":  func(start int) bool { return start%7 > 2 },
		"none before the last": func(start int) bool { return start == 2999 },
	} {
		var r Reigns
		for start := range 3000 {
			r.Set(r.History())
			r.Begin(uint64(start % 2 * start))
			before := r.Accepted()
			if !updates(start) {
				r.Advance(r.Present, r.Newest.Last+1)
				if r.Newest.ID < before.ID {
					t.Fatalf("%s: start %d: %x after %x", name, start, r.Newest, before)
				}
			} else {
				r.Count()
				r.Advance(r.Present, r.Newest.Last+1)
				if got := r.Accepted(); Compare(got, before) <= 0 || Compare(before, got) >= 0 {
					t.Fatalf("%s: start %d: %x does not continue %x", name, start, got, before)
				}
			}
			if got := r.Accepted(); TermOf(r.Newest.ID) != 0 || Compare(got, both) >= 0 {
				t.Fatalf("%s: after %d starts %x, which only one server has had, outranks a map of both", name, start+1, got)
			}
		}
		r.Shared = true
		r.Count()
		if r.Present <= r.Newest.ID || TermOf(r.Present) == 0 {
			t.Errorf("%s: %x after %x, though the other server has the map", name, r.Present, r.Newest)
		}
	}
}

// TestInterimsNeverCount: a server that restarts thousands of times, and each time expires a
// key, keeps the last update of a client, by which its map is compared.
func TestInterimsNeverCount(t *testing.T) {
	t.Parallel()
	for _, before := range []Reign{{1 << ReignBits, 10}, {1<<ReignBits | reignRandom, 10}, {1<<ReignBits | ReignTook | reignRandom, 10}} {
		var r Reigns
		r.Advance(before.ID, before.Last)
		for i := range int64(2000) {
			r.Begin(0)
			if r.Present <= r.Newest.ID {
				t.Fatalf("%x after %x", r.Present, r.Newest.ID)
			}
			r.Advance(r.Present, before.Last+i+1)
			if got := r.Accepted(); got != before {
				t.Fatalf("%x counts after %d interims, not %x", got, i+1, before)
			}
		}
		if n := len(r.History()); n != MaxReigns {
			t.Errorf("%d reigns are remembered", n)
		}
	}
}

// TestCompareReigns: the later term counts, within a reign the sequence, of one term the
// server that took over, of two that did the later one, and then who began first.
func TestCompareReigns(t *testing.T) {
	t.Parallel()
	const term = 1 << ReignBits
	for _, c := range []struct {
		what string
		a, b Reign
		want int
	}{
		{"nothing", Reign{}, Reign{}, 0},
		{"something", Reign{term, 1}, Reign{}, 1},
		{"of a server that was not of a pair", Reign{0, 1}, Reign{}, 1},
		{"the same", Reign{term, 7}, Reign{term, 7}, 0},
		{"more of a reign", Reign{term, 8}, Reign{term, 7}, 1},
		{"a later term, though its sequence is lower", Reign{2 * term, 1}, Reign{term, 9}, 1},
		{"one term, one took over", Reign{term | ReignTook, 1}, Reign{term + 1, 9}, 1},
		{"one term, one began earlier", Reign{term + 1, 1}, Reign{term + 2, 9}, 1},
		{"one term, both took over", Reign{term | ReignTook, 1}, Reign{term | ReignTook | 5, 9}, 1},
		{"one term, one took over later", Reign{reignAfter(0, 8), 1}, Reign{reignAfter(0, 7), 9}, 1},
		{"one term, one that began later took over later", Reign{reignAfter(0, 8), 9}, Reign{reignAfter(0, 7), 1}, 1},
		{"one term, one took over later, and its bits begin again", Reign{reignAfter(0, 5<<tookBits+1), 9}, Reign{reignAfter(0, 5<<tookBits-1), 1}, 1},
		{"of a map of one server, a later stint", Reign{5*firstStint | 3*(stintLow+1), 1}, Reign{4*firstStint | 3*(stintLow+1), 9}, 1},
		{"of two maps of one server each, the one written earlier", Reign{firstStint | 2*(stintLow+1), 1}, Reign{5*firstStint | 3*(stintLow+1), 9}, 1},
		{"a stint, and none", Reign{firstStint, 9}, Reign{0, 1}, 1},
		{"a term, and a stint", Reign{term, 9}, Reign{lastStint, 1}, 1},
		{"one term, as far apart as cannot be", Reign{reignAfter(0, 1<<(tookBits-1)), 1}, Reign{reignAfter(0, 1<<tookBits), 9}, 1},
	} {
		if a, b := Compare(c.a, c.b), Compare(c.b, c.a); a != c.want || b != -c.want {
			t.Errorf("%s: %d and %d", c.what, a, b)
		}
	}
}

// TestImpossibleReigns: terms and sequences after which there would be no others are
// refused, wherever they come from.
func TestImpossibleReigns(t *testing.T) {
	t.Parallel()
	for _, r := range []Reign{{1<<64 - 1, 1}, {(maxTerm + 1) << ReignBits, 1}, {1, -1}, {1, 1<<63 - 1}, {1, maxSequence + 1}} {
		if _, ok := ParseReigns(AppendReigns(nil, []Reign{r})); ok {
			t.Errorf("a history has %x", r)
		}
		h := Head{Reign: r.ID, First: r.Last, Count: 1}
		if _, ok := ParseHead(h.Append(nil)); ok {
			t.Errorf("a batch has %x", r)
		}
	}
	h := Head{Reign: 1, First: maxSequence, Count: 1<<32 - 1}
	if _, ok := ParseHead(h.Append(nil)); ok {
		t.Error("a batch ends above all sequences")
	}
}
