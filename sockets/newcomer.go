package sockets

import "time"

// newcomer is a peer of a ROUTER whose identity is in use by another connection:
// usually the peer's own previous one, whose end was not noticed yet. The newcomer
// stays connected, but its messages wait until the identity is free; then it is
// admitted. If that takes longer than Options.HandshakeTimeout, it is disconnected
// and can try again, except over inproc, where it waits without a limit. Several
// newcomers with the same identity are admitted in the order in which they came.
//
// It is the error of Router.attach.
type newcomer struct {
	routes *routes
	pipe   *pipe
	peer   *Peer
	has    bool          // it has the identity; guarded by routes
	free   chan struct{} // closed when has is set
	in     chan struct{} // closed when it is admitted: its messages may be read
}

func (n *newcomer) Error() string { return ErrIdentityInUse.Error() }
func (n *newcomer) Unwrap() error { return ErrIdentityInUse }

// wait waits until the newcomer's identity is free, admits the newcomer and reports
// true. It reports false, and ends the connection, if the connection ends or the
// time most passes first; 0 stands for no limit.
func (n *newcomer) wait(most time.Duration) bool {
	var expired <-chan time.Time
	if most > 0 {
		expired = time.After(most)
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
	s.crowd.add(1)
	s.report(Event{Kind: EventPeerAdmitted, Endpoint: n.pipe.endpoint, Remote: n.peer.remote, Peer: n.peer})
	s.pattern.(*Router).welcome(n.pipe, n.peer)
	close(n.in)
	return true
}

// admitted waits until the newcomer is admitted. It returns false if its connection
// ends first.
func (n *newcomer) admitted() bool {
	select {
	case <-n.in:
		return true
	case <-n.peer.conn.gone:
		return false
	}
}

// queue makes a peer wait for its identity. The mutex must be held.
func (t *routes) queue(p *pipe, peer *Peer) *newcomer {
	n := &newcomer{routes: t, pipe: p, peer: peer, free: make(chan struct{}), in: make(chan struct{})}
	if t.waiting == nil {
		t.waiting = map[string][]*newcomer{}
	}
	id := string(peer.identity)
	t.waiting[id] = append(t.waiting[id], n)
	return n
}

// release removes an identity's route, and gives the identity to the newcomer that
// has waited longest for it. The mutex must be held.
func (t *routes) release(id string) {
	delete(t.table, id)
	if len(t.waiting[id]) == 0 {
		return
	}
	n := t.waiting[id][0]
	dropFrom(t.waiting, id, n)
	t.table[id] = route{n.pipe, &n.peer.conduit}
	n.has = true
	close(n.free)
}

// giveUp makes a newcomer stop waiting. It reports false if the newcomer has the
// identity already.
func (t *routes) giveUp(n *newcomer) bool {
	t.Lock()
	defer t.Unlock()
	dropFrom(t.waiting, string(n.peer.identity), n)
	return !n.has
}
