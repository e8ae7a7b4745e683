package sockets

import (
	"slices"
	"time"
)

// newcomer is a ROUTER's peer whose identity another connection has: usually its
// own last one, whose end was not noticed yet. It is connected, and what it sends
// waits, at first in its connection, until the identity is free; then it is let
// in. If that takes longer than a handshake may, it is disconnected and can try
// again. Newcomers with the same identity have their turns in their order.
//
// It is the error of routerPattern.attach.
type newcomer struct {
	routes *routes
	pipe   *pipe
	peer   *Peer
	has    bool          // the identity; guarded by routes
	free   chan struct{} // closed when it has
	in     chan struct{} // closed when all know of that
}

func (n *newcomer) Error() string { return ErrIdentityInUse.Error() }
func (n *newcomer) Unwrap() error { return ErrIdentityInUse }

// wait lets the newcomer in when its identity is free, and reports whether it did.
// It waits until then, for a time if that is not 0, or until the connection ends.
func (n *newcomer) wait(most time.Duration) bool {
	var expired <-chan time.Time
	if most > 0 {
		timer := time.NewTimer(most)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-n.free:
	case <-expired:
	case <-n.peer.conn.gone:
	}
	if n.routes.giveUp(n) {
		n.peer.conn.close(ErrIdentityInUse)
		return false
	}
	s := n.pipe.socket
	s.report(Event{Kind: PeerAdmitted, Endpoint: n.pipe.endpoint, Remote: n.peer.remote, Peer: n.peer})
	s.pattern.(*routerPattern).welcome(n.pipe, n.peer)
	close(n.in)
	return true
}

// admitted waits until the newcomer is let in. It returns false if its connection
// ended first.
func (n *newcomer) admitted() bool {
	select {
	case <-n.in:
		return true
	case <-n.peer.conn.gone:
		return false
	}
}

// queue enters a peer whose identity is in use. The mutex must be held.
func (t *routes) queue(p *pipe, peer *Peer) *newcomer {
	n := &newcomer{routes: t, pipe: p, peer: peer, free: make(chan struct{}), in: make(chan struct{})}
	if t.waiting == nil {
		t.waiting = map[string][]*newcomer{}
	}
	id := string(peer.identity)
	t.waiting[id] = append(t.waiting[id], n)
	return n
}

// release takes out an identity's route, and gives the identity to who waits for
// it. The mutex must be held.
func (t *routes) release(id string) {
	delete(t.table, id)
	if len(t.waiting[id]) == 0 {
		return
	}
	n := t.waiting[id][0]
	t.unqueue(id, 0)
	t.table[id] = route{n.pipe, n.peer}
	n.has = true
	close(n.free)
}

// giveUp has a newcomer wait no longer. It reports false if it has the identity
// already.
func (t *routes) giveUp(n *newcomer) bool {
	t.Lock()
	defer t.Unlock()
	id := string(n.peer.identity)
	if i := slices.Index(t.waiting[id], n); i >= 0 {
		t.unqueue(id, i)
	}
	return !n.has
}

// unqueue takes one out of those who wait for an identity. The mutex must be held.
func (t *routes) unqueue(id string, i int) {
	if t.waiting[id] = slices.Delete(t.waiting[id], i, i+1); len(t.waiting[id]) == 0 {
		delete(t.waiting, id)
	}
}
