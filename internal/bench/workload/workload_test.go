package workload

import (
	"math"
	"slices"
	"testing"

	"clustermap/internal/testenv"
)

func TestSharesAddUp(t *testing.T) {
	t.Parallel()
	for _, s := range []Spec{
		{Updates: 10, Warmup: 3, Keys: 7, Publishers: 3},
		{Updates: 2, Warmup: 0, Keys: 4, Publishers: 4},
		{Updates: 1_000_003, Warmup: 99, Keys: 10_000, Publishers: 7},
	} {
		updates, warmup, keys := 0, 0, map[string]bool{}
		for p := range s.Publishers {
			updates += s.Measured(p)
			warmup += s.Warmed(p)
			for _, k := range s.KeysOf(p) {
				keys[k] = true
			}
		}
		if updates != s.Updates || warmup != s.Warmup || len(keys) != s.Keys {
			t.Errorf("%+v: shares add up to %d updates, %d of warm-up, %d keys", s, updates, warmup, len(keys))
		}
	}
}

func TestOrderReachesEveryKeyEvenly(t *testing.T) {
	t.Parallel()
	const keys, draws = 10, 100_000
	var counts [keys]int
	order := newOrder(3, keys)
	for range draws {
		counts[order.next()]++
	}
	for i, n := range counts {
		if math.Abs(float64(n)-draws/keys) > 500 {
			t.Errorf("key %d was drawn %d times of %d", i, n, draws)
		}
	}
}

func TestPayloadRoundTrip(t *testing.T) {
	t.Parallel()
	for _, size := range []int{MinValueSize, 23, 24, 25, 32, 1024} {
		s := Spec{ValueSize: size, Publishers: 700}
		value := newPayload(s, 600).fill(1<<40+5, 77)
		publisher, counter, sent, ok := s.parse(value)
		if !ok || publisher != 600 || counter != 1<<40+5 || sent != 77 {
			t.Errorf("size %d: got publisher %d, counter %d, sent %d, %v", size, publisher, counter, sent, ok)
		}
		value[size-1] ^= 1
		if _, _, _, ok := s.parse(value); ok && size >= 24 {
			t.Errorf("size %d: a torn value was taken", size)
		}
		if _, _, _, ok := s.parse(value[1:]); ok {
			t.Errorf("size %d: a value cut short was taken", size)
		}
	}
}

func TestTracker(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                      string
		counters                  []uint64
		lost, doubled, outOfOrder uint64
	}{
		{name: "in order", counters: []uint64{1, 2, 3, 4, 5, 6}},
		{name: "nothing", lost: 6},
		{name: "head lost", counters: []uint64{3, 4, 5, 6}, lost: 2},
		{name: "tail lost", counters: []uint64{1, 2, 3}, lost: 3},
		{name: "middle lost", counters: []uint64{1, 2, 5, 6}, lost: 2},
		{name: "doubled", counters: []uint64{1, 2, 2, 3, 4, 5, 6, 1}, doubled: 2},
		{name: "swapped", counters: []uint64{1, 3, 2, 4, 5, 6}, outOfOrder: 1},
		{name: "late and then again", counters: []uint64{1, 6, 4, 3, 4, 2, 5}, outOfOrder: 4, doubled: 1},
		{name: "late, rest lost", counters: []uint64{6, 3}, outOfOrder: 1, lost: 4},
	} {
		var tracker tracker
		for _, n := range c.counters {
			tracker.see(n)
		}
		if lost := tracker.lost(6); lost != c.lost || tracker.doubled != c.doubled || tracker.outOfOrder != c.outOfOrder {
			t.Errorf("%s: lost %d, doubled %d, out of order %d; want %d, %d, %d",
				c.name, lost, tracker.doubled, tracker.outOfOrder, c.lost, c.doubled, c.outOfOrder)
		}
	}
}

func TestHistogramPercentiles(t *testing.T) {
	t.Parallel()
	var h, merged Histogram
	values := []int64{}
	order := newOrder(0, 1<<30)
	for range 10_000 {
		v := int64(order.next()) >> (order.next() % 30)
		values = append(values, v)
		h.Add(v, 1)
	}
	merged.Merge(h.Sparse())
	slices.Sort(values)
	for _, p := range []float64{0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		want := float64(values[int(math.Ceil(p*float64(len(values))))-1])
		if got := merged.Percentile(p); math.Abs(got-want) > want*0.033+1 {
			t.Errorf("percentile %v: %v, want %v", p, got, want)
		}
	}
	if merged.Max() != values[len(values)-1] {
		t.Errorf("max %d, want %d", merged.Max(), values[len(values)-1])
	}
}

func TestHistogramTakesAnything(t *testing.T) {
	t.Parallel()
	var h Histogram
	if h.Percentile(0.5) != 0 {
		t.Error("percentile of nothing")
	}
	h.Add(-5, 1)
	h.Add(math.MaxInt64, 1)
	h.Merge(Sparse{Counts: [][2]uint64{{1 << 40, 1}}})
}

// play sends the workload to a checker and a map, in the publishers' turns.
func play(s Spec, deliver func(key string, value []byte)) {
	for p := range s.Publishers {
		source := NewSource(s, p)
		for range s.Warmed(p) + s.Measured(p) {
			deliver(source.Next())
		}
	}
}

func content(m map[string]string) Content {
	var c Content
	for k, v := range m {
		c.Add([]byte(k), []byte(v))
	}
	return c
}

func TestCheckerAgreesWithExpected(t *testing.T) {
	t.Parallel()
	s := Spec{Prefix: "/bench/", Updates: 5000, Warmup: 100, Keys: 700, ValueSize: 32, Publishers: 3}
	checker := NewChecker(s)
	m := map[string]string{}
	play(s, func(key string, value []byte) {
		_, _, sent, _ := s.parse(value)
		checker.See([]byte(key), value, sent+100)
		m[key] = string(value)
	})
	r := checker.Report(content(m))
	if r.Delivered != 5000 || r.Lost+r.Doubled+r.OutOfOrder+r.Foreign != 0 {
		t.Errorf("%+v", r)
	}
	if r.Content != s.Expected() {
		t.Errorf("content %+v, expected %+v", r.Content, s.Expected())
	}
	var h Histogram
	h.Merge(r.Latency)
	if got := h.Percentile(0.5); math.Abs(got-100) > 4 {
		t.Errorf("latency %v, want 100", got)
	}

	for k, v := range m {
		m[k] = v[:len(v)-1] + "!"
		break
	}
	if content(m) == s.Expected() {
		t.Error("a changed value goes unnoticed")
	}
}

func TestCheckerSeesForeignValues(t *testing.T) {
	t.Parallel()
	s := Spec{Prefix: "/bench/", Updates: 1, Keys: 1, ValueSize: 32, Publishers: 1}
	checker := NewChecker(s)
	checker.See(nil, []byte("something else"), 0)
	if r := checker.Report(Content{}); r.Foreign != 1 || r.Lost != 1 {
		t.Errorf("%+v", r)
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	s := Spec{Prefix: "/bench/", Updates: 1 << 30, Keys: 1000, ValueSize: 32, Publishers: 1}
	checker := NewChecker(s)
	source := NewSource(s, 0)
	if a := testenv.Allocs(0, 1000, func() {
		_, value := source.Next()
		checker.See(nil, value, Now())
	}); a != 0 {
		t.Errorf("%v allocations an update", a)
	}
}

func TestNowAdvances(t *testing.T) {
	t.Parallel()
	if a, b := Now(), Now(); b < a || a <= 0 {
		t.Errorf("%d, then %d", a, b)
	}
}
