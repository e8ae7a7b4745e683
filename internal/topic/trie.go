// Package topic finds the subscribers of a topic. It knows nothing of sockets, peers or
// queues.
package topic

import (
	"bytes"
	"slices"
)

// Trie maps byte strings to sets of values and finds the values whose string is a
// prefix of a given topic. It is a radix tree: an edge holds all bytes up to the
// next branch, so the cost of a match grows with the length of the topic and not
// with the number of strings or values.
//
// It is not safe for concurrent use.
type Trie[V comparable] struct {
	root Node[V]
	size int // number of distinct strings
}

// Node is a node of a trie. Calling Next repeatedly from Root visits the nodes of all
// strings that are prefixes of a topic.
type Node[V comparable] struct {
	edge     []byte // bytes that lead here from the parent
	children []*Node[V]
	heads    []byte      // first byte of each child's edge
	index    *[256]uint8 // index in children by first byte; nil while there are few children
	values   []V         // in the order of Add until a value is removed
	places   map[V]int   // index in values; nil while there are few values
}

const (
	// manyValues is the maximum number of values that a node searches linearly.
	manyValues = 8
	// fewChildren is the maximum number of children that a node searches linearly.
	// An index of 256 bytes is smaller than four children.
	fewChildren = 3
)

// Root returns the node of the empty string.
func (t *Trie[V]) Root() *Node[V] { return &t.root }

// Len returns the number of distinct strings.
func (t *Trie[V]) Len() int { return t.size }

// Add adds v to the set of key. It reports false if v was there already.
func (t *Trie[V]) Add(key []byte, v V) bool {
	n := &t.root
	for len(key) > 0 {
		i := n.child(key[0])
		if i < 0 {
			leaf := &Node[V]{edge: bytes.Clone(key)}
			n.adopt(leaf)
			n, key = leaf, nil
			break
		}
		child := n.children[i]
		common := commonPrefix(child.edge, key)
		if common < len(child.edge) {
			// A copy: the rest keeps all of the edge's memory, for as long as its strings last.
			middle := &Node[V]{edge: bytes.Clone(child.edge[:common]), heads: []byte{child.edge[common]}, children: []*Node[V]{child}}
			child.edge = child.edge[common:]
			n.children[i] = middle
			child = middle
		}
		n, key = child, key[common:]
	}
	if !n.insert(v) {
		return false
	}
	if len(n.values) == 1 {
		t.size++
	}
	return true
}

// Remove removes v from the set of key and reports whether it was there.
func (t *Trie[V]) Remove(key []byte, v V) bool {
	path := make([]*Node[V], 0, 16)
	n := &t.root
	for len(key) > 0 {
		i := n.child(key[0])
		if i < 0 || !bytes.HasPrefix(key, n.children[i].edge) {
			return false
		}
		path = append(path, n)
		n = n.children[i]
		key = key[len(n.edge):]
	}
	if !n.delete(v) {
		return false
	}
	if len(n.values) > 0 {
		return true
	}
	t.size--
	// From the bottom up, remove empty branches and merge an empty node with its
	// only child.
	for i := len(path) - 1; i >= 0 && len(n.values) == 0; i-- {
		parent := path[i]
		at := parent.child(n.edge[0])
		switch len(n.children) {
		case 0:
			last := len(parent.children) - 1
			parent.heads[at], parent.children[at] = parent.heads[last], parent.children[last]
			if parent.index != nil {
				parent.index[parent.heads[at]] = uint8(at)
			}
			parent.children[last] = nil
			parent.heads, parent.children = parent.heads[:last], parent.children[:last]
		case 1:
			only := n.children[0]
			only.edge = append(bytes.Clone(n.edge), only.edge...)
			parent.children[at] = only
			return true
		default:
			return true
		}
		n = parent
	}
	return true
}

// Has reports whether key has a value.
func (t *Trie[V]) Has(key []byte) bool {
	n := &t.root
	for len(key) > 0 && n != nil {
		n = n.Next(&key)
	}
	return n != nil && len(n.values) > 0
}

// Matches reports whether any string in t is a prefix of topic.
func (t *Trie[V]) Matches(topic []byte) bool {
	n := &t.root
	for n != nil {
		if len(n.values) > 0 {
			return true
		}
		n = n.Next(&topic)
	}
	return false
}

// Values returns the values of the node's string. The slice is valid until the trie
// changes.
func (n *Node[V]) Values() []V { return n.values }

// Leaf reports whether the node has no children.
func (n *Node[V]) Leaf() bool { return len(n.heads) == 0 }

// Next returns the child whose edge is a prefix of topic, or nil, and removes the edge
// from topic.
func (n *Node[V]) Next(topic *[]byte) *Node[V] {
	rest := *topic
	if len(rest) == 0 {
		return nil
	}
	i := n.child(rest[0])
	if i < 0 {
		return nil
	}
	child := n.children[i]
	if len(child.edge) > 1 && !bytes.HasPrefix(rest, child.edge) {
		return nil
	}
	*topic = rest[len(child.edge):]
	return child
}

// Decisive returns how many bytes at the start of topic decide which strings of t are
// prefixes of it: they are the same for all topics that begin with these bytes. It returns
// false if a longer topic could have more.
func (t *Trie[V]) Decisive(topic []byte) (n int, ok bool) {
	for node := &t.root; !node.Leaf(); {
		rest := topic[n:]
		if len(rest) == 0 {
			return 0, false
		}
		i := node.child(rest[0])
		if i < 0 {
			return n + 1, true
		}
		node = node.children[i]
		common := commonPrefix(node.edge, rest)
		switch {
		case common == len(node.edge):
		case common == len(rest):
			return 0, false
		default:
			return n + common + 1, true
		}
		n += common
	}
	return n, true
}

// child returns the index of the child whose edge begins with head, or -1.
func (n *Node[V]) child(head byte) int {
	if n.index != nil {
		// The index has a valid entry only for bytes that begin an edge.
		if i := int(n.index[head]); i < len(n.heads) && n.heads[i] == head {
			return i
		}
		return -1
	}
	for i, h := range n.heads {
		if h == head {
			return i
		}
	}
	return -1
}

// adopt adds a child.
func (n *Node[V]) adopt(child *Node[V]) {
	n.heads = append(n.heads, child.edge[0])
	n.children = append(n.children, child)
	switch last := len(n.heads) - 1; {
	case n.index != nil:
		n.index[child.edge[0]] = uint8(last)
	case last == fewChildren:
		n.index = new([256]uint8)
		for i, h := range n.heads {
			n.index[h] = uint8(i)
		}
	}
}

func (n *Node[V]) find(v V) int {
	if n.places != nil {
		if i, ok := n.places[v]; ok {
			return i
		}
		return -1
	}
	return slices.Index(n.values, v)
}

func (n *Node[V]) insert(v V) bool {
	if n.find(v) >= 0 {
		return false
	}
	n.values = append(n.values, v)
	if n.places == nil && len(n.values) > manyValues {
		n.places = make(map[V]int, 2*manyValues)
		for i, other := range n.values {
			n.places[other] = i
		}
	} else if n.places != nil {
		n.places[v] = len(n.values) - 1
	}
	return true
}

func (n *Node[V]) delete(v V) bool {
	i := n.find(v)
	if i < 0 {
		return false
	}
	last := len(n.values) - 1
	n.values[i] = n.values[last]
	if n.places != nil {
		n.places[n.values[i]] = i
		delete(n.places, v)
	}
	var zero V
	n.values[last] = zero
	n.values = n.values[:last]
	if last == 0 {
		n.values, n.places = nil, nil // release their memory; the node may remain
	}
	return true
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
