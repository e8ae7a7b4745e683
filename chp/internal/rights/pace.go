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

// take counts updates, and returns how long the client must send no more.
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
	return max(a.free.Sub(now), 0)
}

// spent reports whether the client may send less than one that has just come.
func (a *account) spent(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.free.After(now.Add(-burst))
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
	if p.paced == nil {
		p.paced = map[*sockets.Peer]pace{}
	}
	name := holder(peer, role)
	p.paced[peer] = pace{p.open(name), name, role.limits}
}

// open returns the account of a holder, which stays until close. mu must be held.
func (p *Peers) open(name string) *account {
	a := p.accounts[name]
	if a == nil {
		a = &account{}
		if p.accounts == nil {
			p.accounts = map[string]*account{}
		}
		p.accounts[name] = a
	}
	a.peers++
	return a
}

// pace is the account of a connection.
type pace struct {
	*account
	name   string
	limits Limits
}

// leave is the reverse of join. mu must be held.
func (p *Peers) leave(peer *sockets.Peer) {
	if of, ok := p.paced[peer]; ok {
		delete(p.paced, peer)
		p.close(of.name, of.account)
	}
}

// close is the reverse of open. The account stays while it differs from a new one: coming back does not
// clear it. mu must be held.
func (p *Peers) close(name string, a *account) {
	if a.peers--; a.peers > 0 {
		return
	}
	now := time.Now()
	if !a.spent(now) {
		delete(p.accounts, name)
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
		case a.spent(now) && p.idle < maxIdle/2:
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
	return min(of.take(time.Now(), of.limits, updates, bytes), mostPause)
}

// Charge counts updates that another door makes for somebody, who has one account with the connections of that name, and returns
// how long they have to wait.
func (p *Peers) Charge(role *Role, updates, bytes int) time.Duration {
	if p == nil || role == nil || role.limits.Rates() == (Limits{}) {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.open(role.name)
	defer p.close(role.name, a)
	return a.take(time.Now(), role.limits, updates, bytes)
}
