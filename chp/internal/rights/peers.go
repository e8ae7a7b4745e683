package rights

import (
	"sync"

	"clustermap/sockets"
)

// Peers knows the role of each connection of a server. A nil *Peers is that of a server without
// rights. It is safe for concurrent use.
type Peers struct {
	// resolve returns the role of a connection now, or nil if it is not to be.
	resolve func(*sockets.Peer) *Role

	// mu guards the fields below. Only that of an account is taken under it.
	mu       sync.RWMutex
	roles    map[*sockets.Peer]*Role // of the connections whose roles have not changed
	paced    map[*sockets.Peer]pace  // those of clients with limits
	accounts map[string]*account     // by holder
	idle     int                     // about the number of accounts without connections
}

// none may do nothing.
var none Role

// NewPeers returns the roles of no connections. resolve must not block.
func NewPeers(resolve func(*sockets.Peer) *Role) *Peers {
	return &Peers{resolve: resolve, roles: map[*sockets.Peer]*Role{}}
}

// Watch handles a monitor event of one of the server's ports, which comes before the first
// message of a connection. It reports false for a connection that has to end.
func (p *Peers) Watch(e sockets.Event) (ok bool) {
	if p == nil || e.Kind != sockets.EventHandshakeSucceeded && e.Kind != sockets.EventDisconnected {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Kind == sockets.EventDisconnected {
		delete(p.roles, e.Peer)
		p.leave(e.Peer)
		return true
	}
	// With mu held: a Refresh finds the connection, or this finds the rights of the Refresh.
	role := p.resolve(e.Peer)
	if role != nil {
		p.roles[e.Peer] = role
		p.join(e.Peer, role)
	}
	return role != nil
}

// Of returns the role of a connection.
func (p *Peers) Of(peer *sockets.Peer) *Role {
	p.mu.RLock()
	role := p.roles[peer]
	p.mu.RUnlock()
	if role == nil { // it has ended or is about to, or it is new, by inproc
		role = p.resolve(peer)
	}
	if role == nil {
		return &none
	}
	return role
}

// Settled reports whether a connection has had one role since it began. What has come over another one was perhaps
// checked against rights that are gone.
func (p *Peers) Settled(peer *sockets.Peer) bool {
	if p == nil {
		return true
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.roles[peer] != nil
}

// Refresh returns the connections whose roles are no longer what they were, and which have to end.
func (p *Peers) Refresh() (changed []*sockets.Peer) {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for peer, role := range p.roles {
		if !role.Equal(p.resolve(peer)) {
			delete(p.roles, peer)
			changed = append(changed, peer)
		}
	}
	return changed
}
