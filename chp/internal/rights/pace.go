package rights

import (
	"sync"
	"time"

	"clustermap/sockets"
)

// account is what a client with limits has sent, over all of its connections.
type account struct {
	peers int // connections; guarded by Peers.mu

	mu   sync.Mutex
	free time.Time // when it may send again, if it has sent nothing meanwhile
}

// take counts updates, and returns how long to read no more of the client.
func (a *account) take(now time.Time, l Limits, updates, bytes int) time.Duration {
	var cost time.Duration
	if l.Updates > 0 {
		cost = time.Duration(updates) * time.Second / time.Duration(l.Updates)
	}
	if l.Bytes > 0 {
		cost = max(cost, time.Duration(float64(bytes)/float64(l.Bytes)*float64(time.Second)))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if earliest := now.Add(-burst); a.free.Before(earliest) {
		a.free = earliest
	}
	a.free = a.free.Add(cost)
	return min(max(a.free.Sub(now), 0), mostPause)
}

// excess reports whether the client has sent more than it may.
func (a *account) excess(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.free.After(now)
}

// holder returns who is behind a connection with a role, for its limits: a user or, of those who have no
// name of their own, one address.
func holder(peer *sockets.Peer, role *Role) string {
	if peer.PublicKey().IsZero() && peer.UserID() == role.name {
		if _, proved := peer.Property("Access-Proof"); !proved {
			host, _ := peer.Property("Peer-Address")
			return role.name + " " + host
		}
	}
	return role.name
}

// join adds a connection to the account of its client, if that has limits. mu must be held.
func (p *Peers) join(peer *sockets.Peer, role *Role) {
	if role.limits.Rates() == (Limits{}) {
		return
	}
	name := holder(peer, role)
	a := p.accounts[name]
	if a == nil {
		a = &account{}
		if p.accounts == nil {
			p.accounts, p.paced = map[string]*account{}, map[*sockets.Peer]pace{}
		}
		p.accounts[name] = a
	}
	a.peers++
	p.paced[peer] = pace{a, name, role.limits}
}

// pace is the account of a connection.
type pace struct {
	*account
	name   string
	limits Limits
}

// leave is the reverse of join. The account stays while the client has sent too much: coming back does not
// clear it. mu must be held.
func (p *Peers) leave(peer *sockets.Peer) {
	of, ok := p.paced[peer]
	if !ok {
		return
	}
	delete(p.paced, peer)
	if of.peers--; of.peers > 0 {
		return
	}
	now := time.Now()
	if !of.excess(now) {
		delete(p.accounts, of.name)
		return
	}
	p.idle++
	if p.idle <= maxIdle {
		return
	}
	p.idle = 0
	for name, a := range p.accounts {
		switch {
		case a.peers > 0:
		case a.excess(now) && p.idle < maxIdle/2:
			p.idle++
		default:
			delete(p.accounts, name)
		}
	}
}

// Pace counts updates that a client has sent, and returns how long to read no more of the connection.
func (p *Peers) Pace(peer *sockets.Peer, updates, bytes int) time.Duration {
	p.mu.RLock()
	of, ok := p.paced[peer]
	p.mu.RUnlock()
	if !ok {
		return 0
	}
	return of.take(time.Now(), of.limits, updates, bytes)
}
