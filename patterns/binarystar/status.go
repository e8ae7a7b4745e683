package binarystar

import "time"

// Status is a reading of a node.
type Status struct {
	State State
	// Epoch is the number of the reign that this node has last served or
	// followed.
	Epoch uint64
	// Reason is why State is what it is.
	Reason Reason
	// Changes counts the changes of State. One that is more than 1 above that of
	// the Status before tells that some were not seen.
	Changes uint64
	Peer    Peer
	// Refused counts the messages from the peer's endpoint that told no state.
	Refused uint64
}

// Peer is what is known of the other node.
type Peer struct {
	// Alive says whether it was heard within Options.Timeout. The rest is what
	// it last said; State is 0 if it never did.
	Alive bool
	State State
	// Heard is when it was last heard.
	Heard time.Time
	// Guide says that it is a program of the guide, or one like it, of which no
	// more is known than the State.
	Guide bool
	Epoch uint64
	// Payload is what its Options.Payload returned. It must not be changed.
	Payload []byte
	// SameRole says that it has this node's role, a mistake in the set-up that
	// can leave the pair without an active node, or with two.
	SameRole bool
}

// notable says whether subscribers are to be told of a change.
func (s *Status) notable(old *Status) bool {
	p, q := &s.Peer, &old.Peer
	return s.State != old.State || s.Epoch != old.Epoch || p.Alive != q.Alive || p.State != q.State ||
		p.Epoch != q.Epoch || p.Guide != q.Guide || p.SameRole != q.SameRole
}

// Subscription tells of changes: see [Node.Subscribe].
type Subscription struct {
	node *Node
	c    chan Status // holds one; sent to and closed under node.mu
}

// C returns the channel of changes. It holds the newest one: a later one takes
// its place, so a slow reader holds up nobody and misses what was in between.
// It is closed by Close, and when the node ends.
func (s *Subscription) C() <-chan Status { return s.c }

// Close ends the subscription. It may be called twice.
func (s *Subscription) Close() {
	n := s.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.subscriptions[s] {
		delete(n.subscriptions, s)
		close(s.c)
	}
}

// put replaces what is in the channel. The caller holds node.mu, so nobody
// else sends.
func (s *Subscription) put(v Status) {
	select {
	case <-s.c:
	default:
	}
	s.c <- v
}
