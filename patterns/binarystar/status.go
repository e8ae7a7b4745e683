package binarystar

import (
	"fmt"
	"io"
	"time"
)

// Status is the status of a node.
type Status struct {
	State State
	// Epoch is the number of the reign that this node last served or followed.
	Epoch uint64
	// Reason is the reason for State.
	Reason Reason
	// Changes counts the changes of State. If it increases by more than 1, the
	// subscriber has missed some.
	Changes uint64
	Peer    Peer
	// Refused counts the invalid messages from the peer's endpoint, and those with an epoch
	// so high that only a part of the jump was believed.
	Refused uint64
}

// Peer is the state of the other node as far as a node knows it.
type Peer struct {
	// Alive reports whether the peer was heard within Options.Timeout. The other
	// fields are from its last message; State is 0 if there was none.
	Alive bool
	State State
	// Heard is when the peer was last heard.
	Heard time.Time
	// Down reports that since then the peer's machine has answered that nothing listens
	// at Options.Peer.
	Down bool
	// Guide reports that the peer is a program of the guide, or a similar one, of
	// which only State is known.
	Guide bool
	Epoch uint64
	// Payload is the result of the peer's Options.Payload. It must not be changed.
	Payload []byte
	// SameRole reports that the peer has the same role as this node. This
	// configuration error can leave the pair without an active node, or with two.
	SameRole bool
}

// notable reports whether subscribers are notified of a change.
func (s *Status) notable(old *Status) bool {
	p, q := &s.Peer, &old.Peer
	return s.State != old.State || s.Epoch != old.Epoch || p.Alive != q.Alive || p.State != q.State ||
		p.Epoch != q.Epoch || p.Guide != q.Guide || p.SameRole != q.SameRole
}

// Subscription delivers changes: see [Node.Subscribe].
type Subscription struct {
	node *Node
	c    chan Status // capacity 1; sent to and closed under node.mu
}

// Format implements [fmt.Formatter]. It writes the name of the type for every verb: its
// options may have a secret key, and other fields change while it is in use.
func (s *Subscription) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "binarystar.Subscription")
}

// C returns the channel of changes. A newer Status replaces an unread one, so a slow
// reader blocks nothing and misses intermediate changes. The channel is closed by Close,
// and when the node ends.
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

// put replaces the Status in the channel. The caller holds node.mu, so there is no other
// sender.
func (s *Subscription) put(v Status) {
	select {
	case <-s.c:
	default:
	}
	s.c <- v
}
