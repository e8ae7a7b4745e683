package chp

import (
	"errors"
	"slices"
	"strings"

	"clustermap/internal/kvmsg"
)

// A subtree specification is one of three:
//
//	""       every key
//	"/a/b/"  every key that begins with these bytes (RFC 12 §State Synchronization)
//	"/a/b"   this one key, since there is no slash at the end
//
// The third is an extension, used with servers of this package only. From others the
// client requests the smallest subtree that contains the key, and ignores other keys.

// isTree reports whether spec stands for all keys with a prefix rather than one key.
func isTree(spec string) bool { return spec == "" || spec[len(spec)-1] == '/' }

// checkSubtree returns an error if spec is not a valid specification, and nil otherwise.
func checkSubtree(spec string) *SubtreeError {
	switch {
	case spec == "":
		return nil
	case !isTree(spec):
		if refused := (*MessageError)(nil); errors.As(validKey(spec), &refused) {
			return &SubtreeError{spec, "is not a valid key: " + refused.Detail}
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

// subtrees is a set of specifications of which none covers another. It is immutable and
// safe for concurrent use.
//
// list is sorted by bytes, so the search for the subtree of a key is a binary one: if p
// contains key k, any q with p < q <= k would begin with p, be covered by p, and not be
// in the list. So only the greatest element that is not above k can contain k.
type subtrees struct {
	list []string
	one  string // list[0] if it is the only one, for speed
}

// newSubtrees returns the set of valid specifications; without any it contains all
// keys.
func newSubtrees(specs []string) subtrees {
	if len(specs) == 0 {
		return subtrees{list: []string{""}}
	}
	sorted := slices.Clone(specs)
	slices.Sort(sorted)
	reduced := sorted[:0]
	for _, spec := range sorted {
		// A specification that covers spec sorts before it and covers everything
		// in between, so only the last one kept can cover spec.
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

// covers reports whether every key of spec is one of outer.
func covers(outer, spec string) bool {
	if isTree(outer) {
		return strings.HasPrefix(spec, outer)
	}
	return outer == spec
}

// all reports whether the set contains every key.
func (s *subtrees) all() bool { return len(s.list) == 1 && s.one == "" }

// exact reports whether the set has single keys. Then a subscription, which is a
// prefix, matches more than the set.
func (s *subtrees) exact() bool {
	return slices.ContainsFunc(s.list, func(spec string) bool { return !isTree(spec) })
}

// contains reports whether key is in the set.
func (s *subtrees) contains(key []byte) bool { return s.find(key) >= 0 }

// find returns the index in list of the specification that contains key, or -1.
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

// meets reports whether s and spec can have a key in common.
func (s *subtrees) meets(spec string) bool {
	return slices.ContainsFunc(s.list, func(mine string) bool {
		return covers(mine, spec) || covers(spec, mine)
	})
}

// plain returns the smallest set in the form of RFC 12 that covers s: it replaces
// single keys by the subtrees that contain them.
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
