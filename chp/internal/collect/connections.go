package collect

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"clustermap/chp/internal/wire"
	"clustermap/sockets"
)

// portPublisher is the port to which each client has one connection.
const portPublisher = "publisher"

// connections are all connections to the server's ports. members.mu guards them.
type connections struct {
	all     map[*sockets.Peer]*connection
	clients []*connection // those to the publisher, of which each client has one, by number
	last    uint64        // the highest number
}

// connection is one connection to one port.
type connection struct {
	peer   *sockets.Peer
	port   string
	id     string // of the client; "" if it is of another implementation
	shown  string // see shownID
	number uint64 // increases from connection to connection
	since  time.Time
}

func (c *connections) add(peer *sockets.Peer, port, id string) {
	c.last++
	one := &connection{peer, port, id, shownID(id), c.last, time.Now()}
	c.all[peer] = one
	if port == portPublisher {
		c.clients = append(c.clients, one)
	}
}

// shownID returns what stands for the identity of a client where that is shown. With the identity itself anybody could
// connect as the client, have its updates refused as old ones, and get the answers to it.
func shownID(id string) string {
	if id == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("shown " + id))
	return hex.EncodeToString(sum[:len(id)/2])
}

func (c *connections) remove(peer *sockets.Peer) {
	one := c.all[peer]
	if one == nil {
		return
	}
	delete(c.all, peer)
	if i, found := c.above(one.number - 1); found {
		c.clients = slices.Delete(c.clients, i, i+1)
	}
}

// above returns the index of the first client whose number is above n, and whether that is n+1.
func (c *connections) above(n uint64) (int, bool) {
	return slices.BinarySearchFunc(c.clients, n+1, func(one *connection, n uint64) int {
		if one.number < n {
			return -1
		}
		return int(min(one.number-n, 1))
	})
}

// isClient reports whether a connection is one of a client: others only ask for the status or a
// handover, or are of the other server of a pair.
func isClient(p *sockets.Peer) bool { return !wire.Ours(p) || wire.IsClient(p) }

// Connected is a client that is connected.
type Connected struct {
	Number    uint64 // increases from connection to connection
	ID        string // see shownID; "" if it is of another implementation
	Name      string // that it was authenticated with, or ""
	Since     time.Time
	Publisher *sockets.Peer // its connection to the publisher
	Collector *sockets.Peer // the connection of its last update, or nil
}

// After returns the clients whose numbers are above one, in the order of these, and most of them at
// most.
func (c *Clients) After(number uint64, most int) []Connected {
	m := &c.members
	m.mu.Lock()
	defer m.mu.Unlock()
	i, _ := m.connected.above(number)
	rest := m.connected.clients[i:]
	page := make([]Connected, min(most, len(rest)))
	for i := range page {
		one := rest[i]
		page[i] = Connected{Number: one.number, ID: one.shown, Name: authorOf(one.peer), Since: one.since, Publisher: one.peer}
		if who := m.byID[one.id]; who != nil {
			page[i].Collector = who.last
		}
	}
	return page
}

// Disconnect ends the connections of the clients with a Connected.ID, a name or a public key, or the one
// whose connection to the publisher has an address. It returns how many clients that are.
func (c *Clients) Disconnect(who string, reason error) (clients int) {
	for _, one := range c.matching(who) {
		if one.port == portPublisher {
			clients++
		}
		one.peer.Disconnect(reason)
	}
	return clients
}

func (c *Clients) matching(who string) (found []*connection) {
	m := &c.members
	m.mu.Lock()
	defer m.mu.Unlock()
	if who == "" {
		return nil
	}
	ids := map[string]bool{}
	for peer, one := range m.connected.all {
		key := peer.PublicKey()
		named := one.shown == who || peer.UserID() == who || !key.IsZero() && key.String() == who
		if !named && (one.port != portPublisher || peer.RemoteAddr() != who) || !isClient(peer) {
			continue
		}
		if one.id == "" {
			found = append(found, one)
		} else {
			ids[one.id] = true
		}
	}
	for _, one := range m.connected.all {
		if ids[one.id] {
			found = append(found, one)
		}
	}
	return found
}

// Connected returns all connections.
func (c *Clients) Connected() []*sockets.Peer {
	c.members.mu.Lock()
	defer c.members.mu.Unlock()
	return slices.Collect(maps.Keys(c.members.connected.all))
}

// DisconnectAll ends the connections of all clients. Connections that only ask for the
// status or a handover stay.
func (c *Clients) DisconnectAll(reason error) {
	for _, p := range c.Connected() {
		if isClient(p) {
			p.Disconnect(reason)
		}
	}
}

// DisconnectOurs ends the connections of the clients of this package, which send again what they have no
// answer for.
func (c *Clients) DisconnectOurs(reason error) {
	for _, p := range c.Connected() {
		if wire.Ours(p) && wire.IsClient(p) {
			p.Disconnect(reason)
		}
	}
}
