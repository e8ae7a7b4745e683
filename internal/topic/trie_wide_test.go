package topic

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestTrieWide compares a trie whose nodes get many children, and lose them, with a map.
func TestTrieWide(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	var wide Trie[int]
	have := map[string]bool{}
	for step := range 20_000 {
		key := string([]byte{byte(r.IntN(256))})
		for range r.IntN(3) {
			key += string([]byte{byte(r.IntN(24))})
		}
		// First it grows, then it shrinks, and so on.
		if r.IntN(10) < 2+step/2000%2*6 {
			if wide.Remove([]byte(key), 1) != have[key] {
				t.Fatalf("remove %q: it was there: %v", key, have[key])
			}
			delete(have, key)
		} else {
			if wide.Add([]byte(key), 1) == have[key] {
				t.Fatalf("add %q: it was there: %v", key, have[key])
			}
			have[key] = true
		}
		topic := string([]byte{byte(r.IntN(256)), byte(r.IntN(24)), byte(r.IntN(24))})
		want := false
		for n := range len(topic) + 1 {
			want = want || have[topic[:n]]
		}
		if wide.Matches([]byte(topic)) != want {
			t.Fatalf("%q matches: %v", topic, !want)
		}
		if wide.Has([]byte(key)) != have[key] || wide.size != len(have) {
			t.Fatalf("%d strings, want %d; has %q: %v", wide.size, len(have), key, !have[key])
		}
	}
}

func BenchmarkTrieMatches(b *testing.B) {
	for _, n := range []int{1, 8, 16, 128, 256} {
		var t Trie[struct{}]
		for i := range n {
			t.Add([]byte{byte(i)}, struct{}{})
		}
		topics := make([][]byte, 1024)
		for i := range topics {
			topics[i] = fmt.Appendf([]byte{byte(rand.IntN(n))}, "/%d", i)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if !t.Matches(topics[i%1024]) {
					b.Fatal("does not match")
				}
			}
		})
	}
}
