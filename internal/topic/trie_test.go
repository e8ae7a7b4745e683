package topic

import (
	"bytes"
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// found returns the values under all prefixes of topic, sorted, each once.
func (t *Trie[V]) found(topic string, compare func(a, b V) int) []V {
	var all []V
	rest := []byte(topic)
	for n := &t.root; n != nil; n = n.Next(&rest) {
		all = append(all, n.values...)
	}
	slices.SortFunc(all, compare)
	return slices.Compact(all)
}

// check checks the shape of the tree: no dead branches, no chain of edges that could be
// one edge, and copies that agree.
func (n *Node[V]) check(t *testing.T, root bool) (nodes, keys int) {
	t.Helper()
	if !root && (len(n.edge) == 0 || len(n.values) == 0 && len(n.children) < 2) {
		t.Fatalf("node with edge %q, %d values and %d children", n.edge, len(n.values), len(n.children))
	}
	if len(n.heads) != len(n.children) {
		t.Fatalf("%d heads, %d children", len(n.heads), len(n.children))
	}
	if n.places != nil && len(n.places) != len(n.values) {
		t.Fatalf("%d places, %d values", len(n.places), len(n.values))
	}
	for i, v := range n.values {
		if n.find(v) != i {
			t.Fatalf("value %d is found at %d", i, n.find(v))
		}
	}
	if len(n.values) > 0 {
		keys = 1
	}
	nodes = 1
	seen := map[byte]bool{}
	for i, child := range n.children {
		if child.edge[0] != n.heads[i] || seen[n.heads[i]] {
			t.Fatalf("heads %q, child %q", n.heads, child.edge)
		}
		seen[n.heads[i]] = true
		below, k := child.check(t, false)
		nodes, keys = nodes+below, keys+k
	}
	return nodes, keys
}

// TestTrie compares random operations with a map of sets.
func TestTrie(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 0))
		// Few letters make many common prefixes; long words make long edges.
		word := func() string {
			var b strings.Builder
			for range rng.IntN(7) {
				b.WriteString([]string{"a", "b", "ab", "\x00", "\xff", "long/"}[rng.IntN(6)])
			}
			return b.String()
		}
		var tree Trie[int]
		model := map[string]map[int]bool{}
		for step := range 3000 {
			key, v := word(), rng.IntN(3*manyValues)
			if rng.IntN(2) == 0 {
				fresh := !model[key][v]
				if model[key] == nil {
					model[key] = map[int]bool{}
				}
				model[key][v] = true
				if tree.Add([]byte(key), v) != fresh {
					t.Fatalf("seed %d step %d: add(%q, %d) is not %v", seed, step, key, v, fresh)
				}
			} else {
				have := model[key][v]
				delete(model[key], v)
				if len(model[key]) == 0 {
					delete(model, key)
				}
				if tree.Remove([]byte(key), v) != have {
					t.Fatalf("seed %d step %d: remove(%q, %d) is not %v", seed, step, key, v, have)
				}
			}
			topic := word() + word()
			want := map[int]bool{}
			for key, values := range model {
				if strings.HasPrefix(topic, key) {
					maps.Copy(want, values)
				}
			}
			got := tree.found(topic, func(a, b int) int { return a - b })
			if !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
				t.Fatalf("seed %d step %d: %q matches %v, want %v", seed, step, topic, got, want)
			}
			if tree.Matches([]byte(topic)) != (len(want) > 0) {
				t.Fatalf("seed %d step %d: matches(%q) is wrong", seed, step, topic)
			}
			if tree.size != len(model) {
				t.Fatalf("seed %d step %d: size %d, want %d", seed, step, tree.size, len(model))
			}
			if step%100 == 0 {
				if _, keys := tree.root.check(t, true); keys != tree.size {
					t.Fatalf("seed %d step %d: %d keys in the tree, size %d", seed, step, keys, tree.size)
				}
			}
		}
		for key, values := range model {
			for v := range values {
				tree.Remove([]byte(key), v)
			}
		}
		if nodes, _ := tree.root.check(t, true); nodes != 1 || tree.size != 0 {
			t.Fatalf("seed %d: %d nodes and size %d are left", seed, nodes, tree.size)
		}
	}
}

// TestTrieOwnsKeys: the caller's bytes may change afterwards.
func TestTrieOwnsKeys(t *testing.T) {
	t.Parallel()
	var tree Trie[int]
	key := []byte("topic")
	tree.Add(key, 1)
	copy(key, "XXXXX")
	if !tree.Matches([]byte("topic/1")) || tree.Matches([]byte("XXXXX")) {
		t.Error("the tree changed with the caller's bytes")
	}
}

// TestTrieDeep: a chain of prefixes, each a node, is no trouble.
func TestTrieDeep(t *testing.T) {
	t.Parallel()
	const depth = 3000
	var tree Trie[int]
	topic := bytes.Repeat([]byte("x"), depth)
	for i := range depth {
		tree.Add(topic[:i], 1)
	}
	if n := len(tree.found(string(topic), func(a, b int) int { return a - b })); n != 1 {
		t.Errorf("%d values", n)
	}
	for i := range depth {
		tree.Remove(topic[:i], 1)
	}
	if nodes, _ := tree.root.check(t, true); nodes != 1 {
		t.Errorf("%d nodes are left", nodes)
	}
}

// TestDecisive compares the strings found for topics that begin with the same decisive bytes.
func TestDecisive(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	word := func() string {
		b := make([]byte, random.IntN(7))
		for i := range b {
			b[i] = "abcde"[random.IntN(1+i%5)]
		}
		return string(b)
	}
	decided := 0
	for range 2000 {
		var trie Trie[int]
		for i := range random.IntN(8) {
			trie.Add([]byte(word()), i)
		}
		topic := word() + word()
		n, ok := trie.Decisive([]byte(topic))
		if !ok {
			if n != 0 {
				t.Fatalf("%d bytes of %q decide nothing", n, topic)
			}
			continue
		}
		decided++
		want := trie.found(topic, cmp.Compare)
		for range 10 {
			if other := topic[:n] + word(); !slices.Equal(trie.found(other, cmp.Compare), want) {
				t.Fatalf("%q finds other strings than %q, of which %d bytes should decide", other, topic, n)
			}
		}
	}
	if decided == 0 {
		t.Fatal("nothing was decided")
	}
}

// BenchmarkTrieMatch: the cost does not grow with the number of subscriptions.
func BenchmarkTrieMatch(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			var tree Trie[int]
			for i := range n {
				tree.Add([]byte("/topic/"+strconv.Itoa(i)+"/"), i)
			}
			topic := []byte("/topic/7/value")
			b.ReportAllocs()
			for b.Loop() {
				if !tree.Matches(topic) {
					b.Fatal("no match")
				}
			}
		})
	}
}
