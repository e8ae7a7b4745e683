package engine

import "time"

// Newcomer is a peer of a ROUTER whose identity is in use by another connection:
// usually the peer's own previous one, whose end was not noticed yet. The newcomer
// stays connected, but its messages wait until the identity is free; then it is
// admitted. If that takes longer than Config.HandshakeTimeout, it is disconnected
// and can try again, except over inproc, where it waits without a limit. Several
// newcomers with the same identity are admitted in the order in which they came.
//
// It is the error of Pattern.Attach.
type Newcomer struct {
	Peer *Peer
	Has  bool          // it has the identity; the socket type guards and sets it
	Free chan struct{} // closed by the socket type when Has is set

	giveUp  func(n *Newcomer) bool    // makes it stop waiting; false if it has the identity already
	welcome func(p *Pipe, peer *Peer) // is called when it is admitted

	in chan struct{} // closed when it is admitted: its messages may be read
}

// NewNewcomer returns a newcomer.
func NewNewcomer(peer *Peer, giveUp func(*Newcomer) bool, welcome func(*Pipe, *Peer)) *Newcomer {
	return &Newcomer{Peer: peer, giveUp: giveUp, welcome: welcome, Free: make(chan struct{}), in: make(chan struct{})}
}

func (n *Newcomer) Error() string { return ErrIdentityInUse.Error() }
func (n *Newcomer) Unwrap() error { return ErrIdentityInUse }

// wait waits until the newcomer's identity is free, admits the newcomer and reports
// true. It reports false, and ends the connection, if the connection ends or the
// time most passes first; 0 stands for no limit.
func (n *Newcomer) wait(most time.Duration) bool {
	var expired <-chan time.Time
	if most > 0 {
		expired = time.After(most)
	}
	select {
	case <-n.Free:
	case <-expired:
	case <-n.Peer.conn.Gone():
	}
	if n.giveUp(n) {
		n.Peer.conn.Close(ErrIdentityInUse)
		return false
	}
	p := n.Peer.pipe
	s := p.socket
	s.countPeers(1)
	s.report(Event{Kind: PeerAdmitted, Endpoint: p.Endpoint, Remote: n.Peer.remote, Peer: n.Peer})
	n.welcome(p, n.Peer)
	close(n.in)
	return true
}

// admitted waits until the newcomer is admitted. It returns false if its connection
// ends first.
func (n *Newcomer) admitted() bool {
	select {
	case <-n.in:
		return true
	case <-n.Peer.conn.Gone():
		return false
	}
}
