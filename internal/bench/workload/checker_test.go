package workload

import "testing"

// arrive gives a checker all updates, the publishers in turns, except that edit may change
// their order and number. It returns the report and the checker.
func arrive(s Spec, edit func([]update) []update) (Report, *Checker) {
	var all []update
	var sources []*Source
	for p := range s.Publishers {
		sources = append(sources, NewSource(s, p))
	}
	for i := range s.Warmup + s.Updates {
		key, value := sources[i%s.Publishers].Next()
		all = append(all, update{key, string(value)})
	}
	c := NewChecker(s)
	held := map[string]string{}
	for _, u := range edit(all) {
		if c.Done() {
			break
		}
		held[u.key] = u.value
		c.See([]byte(u.key), []byte(u.value), 1)
	}
	return c.Report(s.ContentOf(func(key string) ([]byte, bool) {
		value, ok := held[key]
		return []byte(value), ok
	})), c
}

type update struct{ key, value string }

func TestCheckerFindsEveryFault(t *testing.T) {
	t.Parallel()
	one := Spec{Prefix: "/bench/", Keys: 100, Warmup: 100, Updates: 1000, ValueSize: 32, Publishers: 1, Each: true}
	lanes := one
	lanes.Publishers = 10
	conflates := one
	conflates.Conflates = true
	replaced := one.Keys // an update whose key is set again
	for _, n := range one.finals(0) {
		if n == uint64(replaced)+1 {
			replaced++
		}
	}
	same := func(all []update) []update { return all }
	without := func(i int) func([]update) []update {
		return func(all []update) []update { return append(all[:i:i], all[i+1:]...) }
	}
	swapped := func(i, j int) func([]update) []update {
		return func(all []update) []update {
			all[i], all[j] = all[j], all[i]
			return all
		}
	}
	doubled := func(all []update) []update { return append(all[:200:200], all[199:]...) }
	foreign := func(all []update) []update {
		all[300].value = all[300].value[1:]
		return all
	}
	for _, c := range []struct {
		name  string
		spec  Spec
		edit  func([]update) []update
		sound bool
	}{
		{"all", one, same, true},
		{"all, of ten publishers", lanes, same, true},
		{"all, conflating", conflates, same, true},
		{"one lost", one, without(replaced), false},
		{"one lost, conflating", conflates, without(replaced), true},
		{"the last lost", one, without(1099), false},
		{"the last lost, conflating", conflates, without(1099), false},
		{"one doubled", one, doubled, false},
		{"one doubled, conflating", conflates, doubled, true},
		{"two swapped", one, swapped(500, 501), false},
		{"two swapped, of different publishers", lanes, swapped(500, 501), true},
		{"two swapped, of one publisher", lanes, swapped(500, 510), false},
		{"one cut short", one, foreign, false},
	} {
		r, checker := arrive(c.spec, c.edit)
		if err := r.Fault(c.spec, c.spec.Expected()); (err == nil) != c.sound {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.sound && (!checker.Warm() || !checker.Done()) {
			t.Errorf("%s: warm is %v, done is %v", c.name, checker.Warm(), checker.Done())
		}
	}
}

// With Each, the first updates of a publisher set each of its keys.
func TestEachKeyComesFirst(t *testing.T) {
	t.Parallel()
	s := Spec{Prefix: "/bench/", Keys: 103, Warmup: 103, Updates: 10, ValueSize: 32, Publishers: 10, Each: true}
	seen := map[string]bool{}
	for p := range s.Publishers {
		source := NewSource(s, p)
		for range s.Warmed(p) {
			key, _ := source.Next()
			seen[key] = true
		}
	}
	if len(seen) != s.Keys {
		t.Errorf("%d of %d keys", len(seen), s.Keys)
	}
}
