package subtree

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"clustermap/internal/testenv"
)

func TestSubtreeForm(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{"", "/a/", "/a/b/", "/a", "key", "/a/b", "//a/"} {
		if err := Check(spec); err != nil {
			t.Errorf("checkSubtree(%q) = %v", spec, err)
		}
	}
	for _, spec := range []string{
		"/", "//", "a/", "/a\x00/", "a\x00", "HUGZ", "HUGZ1", "KTHXBAI",
		"/" + strings.Repeat("x", 255) + "/", strings.Repeat("x", 256),
	} {
		if err := Check(spec); err == nil || err.Subtree != spec || strings.Count(err.Error(), "chp: ") != 1 {
			t.Errorf("checkSubtree(%q) = %v, want a *SubtreeError", spec, err)
		}
	}
}

func TestSubtreeReduction(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ specs, want, plain []string }{
		{nil, []string{""}, []string{""}},
		{[]string{"/a/", ""}, []string{""}, []string{""}},
		{[]string{"/a/b/", "/a/", "/a/b/c"}, []string{"/a/"}, []string{"/a/"}},
		{[]string{"/b/", "/a/", "/b/"}, []string{"/a/", "/b/"}, []string{"/a/", "/b/"}},
		{[]string{"/a/b", "/a/bc"}, []string{"/a/b", "/a/bc"}, []string{"/a/"}},
		{[]string{"/a", "/a/"}, []string{"/a", "/a/"}, []string{""}},
		{[]string{"/a/x", "/b/"}, []string{"/a/x", "/b/"}, []string{"/a/", "/b/"}},
		{[]string{"key"}, []string{"key"}, []string{""}},
	} {
		got := New(c.specs)
		if !slices.Equal(got.List, c.want) {
			t.Errorf("newSubtrees(%q) = %q, want %q", c.specs, got.List, c.want)
		}
		if plain := got.Plain(); !slices.Equal(plain.List, c.plain) {
			t.Errorf("plain form of %q = %q, want %q", c.specs, plain.List, c.plain)
		}
		if got.All() != slices.Equal(c.want, []string{""}) {
			t.Errorf("newSubtrees(%q).all() = %v", c.specs, got.All())
		}
	}
}

// TestSubtreeFind compares the binary search with a look at each
// specification, on random sets over a small alphabet.
func TestSubtreeFind(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	word := func() string {
		bytes := make([]byte, random.IntN(6))
		for i := range bytes {
			bytes[i] = "/ab!"[random.IntN(4)]
		}
		return "/" + string(bytes)
	}
	for range 5000 {
		var specs []string
		for range 1 + random.IntN(6) {
			if spec := word(); Check(spec) == nil {
				specs = append(specs, spec)
			}
		}
		if len(specs) == 0 {
			continue
		}
		set := New(specs)
		for range 20 {
			key := word()
			want := slices.ContainsFunc(specs, func(spec string) bool { return covers(spec, key) && (IsTree(spec) || spec == key) })
			if got := set.Contains([]byte(key)); got != want {
				t.Fatalf("%q (reduced from %q) holds %q = %v, want %v", set.List, specs, key, got, want)
			}
			if i := set.Find([]byte(key)); i >= 0 && !covers(set.List[i], key) {
				t.Fatalf("%q found in %q", key, set.List[i])
			}
			if plain := set.Plain(); want && !plain.Contains([]byte(key)) {
				t.Fatalf("plain form %q of %q lost %q", plain.List, set.List, key)
			}
		}
	}
}

func TestSubtreeOverlaps(t *testing.T) {
	t.Parallel()
	set := New([]string{"/a/", "/b/c"})
	for spec, want := range map[string]bool{
		"": true, "/a/": true, "/a/x/": true, "/a/x": true, "/b/": true, "/b/c": true,
		"/c/": false, "/b/d": false, "/b/c/": false, "/a": false,
	} {
		if got := set.Overlaps(spec); got != want {
			t.Errorf("overlaps(%q) = %v, want %v", spec, got, want)
		}
	}
}

func TestSubtreeFindAllocatesNothing(t *testing.T) {
	set := New([]string{"/a/", "/b/", "/c/d"})
	key := []byte("/b/some/key")
	if n := testenv.Allocs(0, 100, func() {
		if !set.Contains(key) {
			t.Fatal("not found")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
