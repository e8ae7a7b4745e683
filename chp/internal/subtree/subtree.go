// Package subtree says which keys a part of a map has. A specification is one of three:
//
//	""       every key
//	"/a/b/"  every key that begins with these bytes (RFC 12 §State Synchronization)
//	"/a/b"   this one key, since there is no slash at the end
//
// The third is an extension, used with servers of this package only. From others the
// client requests the smallest subtree that contains the key, and ignores other keys.
package subtree

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"clustermap/internal/kvmsg"
)

// Error is chp.SubtreeError.
type Error struct {
	Subtree string
	Reason  string
}

func (e *Error) Error() string { return fmt.Sprintf("chp: subtree %q %s", e.Subtree, e.Reason) }

// IsTree reports whether spec stands for all keys with a prefix rather than one key.
func IsTree(spec string) bool { return spec == "" || spec[len(spec)-1] == '/' }

// Check returns an error if spec is not a valid specification, and nil otherwise.
func Check(spec string) *Error {
	switch {
	case spec == "":
		return nil
	case !IsTree(spec):
		if refused := (*kvmsg.MessageError)(nil); errors.As(kvmsg.ValidKey([]byte(spec)), &refused) {
			return &Error{spec, "is not a valid key: " + refused.Detail}
		}
	case len(spec) > kvmsg.MaxKey:
		return &Error{spec, "is longer than any key"}
	case spec == kvmsg.LeasePrefix: // the map's own keys
		return nil
	case spec[0] != '/':
		return &Error{spec, "does not begin with a slash"}
	case len(spec) < 3:
		return &Error{spec, "has no segment between its slashes"}
	case strings.IndexByte(spec, 0) >= 0:
		return &Error{spec, "contains a NUL byte"}
	}
	return nil
}

// Set is a set of specifications of which none covers another. It is immutable and
// safe for concurrent use.
//
// List is sorted by bytes, so the search for the subtree of a key is a binary one: if p
// contains key k, any q with p < q <= k would begin with p, be covered by p, and not be
// in the list. So only the greatest element that is not above k can contain k.
type Set struct {
	List []string // sorted, not to be changed
	one  string   // List[0] if it is the only one, for speed
}

// New returns the set of valid specifications; without any it contains all
// keys.
func New(specs []string) Set {
	if len(specs) == 0 {
		return Set{List: []string{""}}
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
	s := Set{List: reduced}
	if len(reduced) == 1 {
		s.one = reduced[0]
	}
	return s
}

// covers reports whether every key of spec is one of outer.
func covers(outer, spec string) bool {
	if IsTree(outer) {
		return strings.HasPrefix(spec, outer)
	}
	return outer == spec
}

// All reports whether the set contains every key.
func (s *Set) All() bool { return len(s.List) == 1 && s.one == "" }

// Exact reports whether the set has single keys. Then a subscription, which is a
// prefix, matches more than the set.
func (s *Set) Exact() bool {
	return slices.ContainsFunc(s.List, func(spec string) bool { return !IsTree(spec) })
}

// Contains reports whether key is in the set.
func (s *Set) Contains(key []byte) bool { return s.Find(key) >= 0 }

// Shows reports whether key is in the set and not hidden in it: the map's own keys are shown only to those
// who ask for them by their prefix.
func (s *Set) Shows(key []byte) bool {
	return (s.All() || s.Contains(key)) && (!kvmsg.IsHidden(key) || !s.All())
}

// Find returns the index in List of the specification that contains key, or -1.
func (s *Set) Find(key []byte) int {
	if len(s.List) == 1 { // the usual case, without a search
		if len(key) >= len(s.one) && string(key[:len(s.one)]) == s.one && (len(key) == len(s.one) || IsTree(s.one)) {
			return 0
		}
		return -1
	}
	low, high := 0, len(s.List) // list[:low] <= key < list[high:]
	for low < high {
		if mid := int(uint(low+high) >> 1); s.List[mid] <= string(key) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 {
		return -1
	}
	spec := s.List[low-1]
	if IsTree(spec) {
		if len(key) >= len(spec) && string(key[:len(spec)]) == spec {
			return low - 1
		}
	} else if string(key) == spec {
		return low - 1
	}
	return -1
}

// Overlaps reports whether s and spec can have a key in common.
func (s *Set) Overlaps(spec string) bool {
	return slices.ContainsFunc(s.List, func(mine string) bool {
		return covers(mine, spec) || covers(spec, mine)
	})
}

// Plain returns the smallest set in the form of RFC 12 that covers s: it replaces
// single keys by the subtrees that contain them.
func (s *Set) Plain() Set {
	wide := make([]string, len(s.List))
	for i, spec := range s.List {
		wide[i] = parent(spec)
	}
	return New(wide)
}

// parent returns the smallest subtree of RFC 12 form that covers spec.
func parent(spec string) string {
	if IsTree(spec) {
		return spec
	}
	tree := spec[:strings.LastIndexByte(spec, '/')+1]
	if Check(tree) != nil {
		return "" // such as "/" of "/key", which has no segment
	}
	return tree
}
