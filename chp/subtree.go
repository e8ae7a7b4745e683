package chp

import (
	"slices"
	"strings"

	"clustermap/internal/kvmsg"
)

// A subtree specification is one of three:
//
//	""       every key
//	"/a/b/"  every key that begins with these bytes (RFC 12 §State Synchronization)
//	"/a/b"   this one key; the end without a slash makes the difference
//
// The third is ours. It is asked only of servers that announced themselves as
// ours; from others the client asks for the smallest subtree of RFC 12 that
// holds the key, and leaves out what it did not want.

// isTree says whether spec stands for all keys with a prefix, and not for one
// key.
func isTree(spec string) bool { return spec == "" || spec[len(spec)-1] == '/' }

// checkSubtree says what is wrong with spec as a subtree specification.
func checkSubtree(spec string) error {
	switch {
	case spec == "":
		return nil
	case !isTree(spec):
		if err := validKey(spec); err != nil {
			return &SubtreeError{spec, "is no valid key: " + err.Error()}
		}
	case len(spec) > kvmsg.MaxKey:
		return &SubtreeError{spec, "is longer than any key"}
	case spec[0] != '/':
		return &SubtreeError{spec, "does not begin with a slash"}
	case len(spec) < 3:
		return &SubtreeError{spec, "has no segment between its slashes"}
	case strings.IndexByte(spec, 0) >= 0:
		return &SubtreeError{spec, "contains a NUL byte"}
	}
	return nil
}

// subtrees is a set of subtree specifications, reduced: none covers another.
// It is immutable and safe for concurrent use.
//
// list is sorted by bytes. That makes the search for the subtree of a key a
// binary one: if subtree p holds key k, then any q with p < q <= k would begin
// with p too, hence be covered by p, hence not be in the list. So only the
// greatest element that is not above k can hold k.
type subtrees struct {
	list []string
	one  string // list[0] if there is only one, for the short way
}

// newSubtrees makes a set of valid specifications; none at all means all keys.
func newSubtrees(specs []string) subtrees {
	if len(specs) == 0 {
		return subtrees{list: []string{""}}
	}
	sorted := slices.Clone(specs)
	slices.Sort(sorted)
	reduced := sorted[:0]
	for _, spec := range sorted {
		// What covers spec sorts before it, and everything between the two is
		// covered as well: only the last one kept can be it.
		if n := len(reduced); n == 0 || !covers(reduced[n-1], spec) {
			reduced = append(reduced, spec)
		}
	}
	s := subtrees{list: reduced}
	if len(reduced) == 1 {
		s.one = reduced[0]
	}
	return s
}

// covers says whether every key of spec is one of outer.
func covers(outer, spec string) bool {
	if isTree(outer) {
		return strings.HasPrefix(spec, outer)
	}
	return outer == spec
}

// all says that every key is in the set.
func (s *subtrees) all() bool { return len(s.list) == 1 && s.one == "" }

// exact says that the set contains single keys: then a subscription, which is
// a prefix, brings more than was asked for.
func (s *subtrees) exact() bool {
	return slices.ContainsFunc(s.list, func(spec string) bool { return !isTree(spec) })
}

// contains reports whether key is in one of the subtrees.
func (s *subtrees) contains(key []byte) bool { return s.find(key) >= 0 }

// find returns the index in list of the subtree that holds key, or -1.
func (s *subtrees) find(key []byte) int {
	if len(s.list) == 1 && isTree(s.one) { // the usual case, without a search
		if len(key) >= len(s.one) && string(key[:len(s.one)]) == s.one {
			return 0
		}
		return -1
	}
	low, high := 0, len(s.list) // list[:low] <= key < list[high:]
	for low < high {
		if mid := int(uint(low+high) >> 1); s.list[mid] <= string(key) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 {
		return -1
	}
	spec := s.list[low-1]
	if isTree(spec) {
		if len(key) >= len(spec) && string(key[:len(spec)]) == spec {
			return low - 1
		}
	} else if string(key) == spec {
		return low - 1
	}
	return -1
}

// meets says whether some key could be in both s and spec.
func (s *subtrees) meets(spec string) bool {
	return slices.ContainsFunc(s.list, func(mine string) bool {
		return covers(mine, spec) || covers(spec, mine)
	})
}

// plain returns the smallest set in the form of RFC 12 that covers s: single
// keys give way to the subtrees that they are in.
func (s *subtrees) plain() subtrees {
	wide := make([]string, len(s.list))
	for i, spec := range s.list {
		wide[i] = parent(spec)
	}
	return newSubtrees(wide)
}

// parent returns the smallest subtree of RFC 12 form that covers spec.
func parent(spec string) string {
	if isTree(spec) {
		return spec
	}
	tree := spec[:strings.LastIndexByte(spec, '/')+1]
	if checkSubtree(tree) != nil {
		return "" // such as "/" of "/key", which has no segment
	}
	return tree
}
