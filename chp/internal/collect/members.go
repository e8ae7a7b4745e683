package collect

import (
	"errors"
	"sync"
	"time"

	"clustermap/chp/internal/order"
	"clustermap/chp/internal/wire"
	"clustermap/internal/kvmsg"
	"clustermap/internal/list"
	"clustermap/internal/mutate"
	"clustermap/sockets"
)

// members are the clients of this package that a server knows, by their identity
// (see wire.Client). It relates the connections of one client to each other, and
// recognizes former connections to the collector: a network can deliver updates long
// after the client has closed the connection, and after updates that it sent over the
// next one.
//
// A client without connections is remembered for a while. So the size is bounded by the
// number of connections and maxGone.
type members struct {
	instance string // the server's own instance
	order    *order.Sequencer

	mu    sync.Mutex
	byID  map[string]*member
	peers map[*sockets.Peer]membership // connections to the collector

	connected connections
	newest    uint64            // membership.order of the newest connection in peers
	gone      list.List[member] // without connections, longest gone first
}

// member is one client.
type member struct {
	id          string
	highest     uint64                   // the highest generation of which an update was accepted
	last        *sockets.Peer            // the connection of the last accepted update; nil after all have ended
	lastOrder   uint64                   // membership.order of last
	snapshots   map[uint64]*sockets.Peer // snapshot connections, by generation
	connections int
	unreported  int       // bytes of updates since the last progress report; used by the collector's goroutine
	since       time.Time // when its last connection ended
	relays      relays
	place       list.Element[member] // in members.gone
}

// relays is what of a client's updates went to another server. A reply to the client has nothing behind those of which
// that one has said what became of them: it would tell the client of later ones before it has heard that these were refused.
type relays struct {
	mu   sync.Mutex
	open int    // batches that have no answer yet
	upTo uint64 // the number of the last update that has one
	due  bool   // a reply was shorter for that
}

// relay records that a batch goes to another server.
func (m *member) relay() {
	if m == nil {
		return
	}
	m.relays.mu.Lock()
	defer m.relays.mu.Unlock()
	m.relays.open++
}

// relayed records that the client has been told what was refused of a batch, whose last update has a number. It reports whether
// a reply is due that can be longer now.
func (m *member) relayed(last uint64) (due bool) {
	if m == nil {
		return false
	}
	m.relays.mu.Lock()
	defer m.relays.mu.Unlock()
	m.relays.open--
	m.relays.upTo = max(m.relays.upTo, last)
	due = m.relays.due
	m.relays.due = false
	return due
}

// limit returns the last number that a reply may have, if there is one.
func (m *member) limit() (upTo uint64, limited bool) {
	if m == nil {
		return 0, false
	}
	m.relays.mu.Lock()
	defer m.relays.mu.Unlock()
	m.relays.due = m.relays.open > 0
	return m.relays.upTo, m.relays.open > 0
}

// membership relates a connection to the collector to its client. member is nil for a
// client of another implementation.
type membership struct {
	sender
	generation uint64
	astray     bool   // the client follows another server
	order      uint64 // increases from connection to connection
}

func (m *members) init(instance string, o *order.Sequencer) {
	m.instance, m.order = instance, o
	m.byID = map[string]*member{}
	m.peers = map[*sockets.Peer]membership{}
	m.connected.all = map[*sockets.Peer]*connection{}
}

// Watch handles a monitor event of one of the server's ports: snapshot, publisher or collector.
func (c *Clients) Watch(e sockets.Event, port string) { c.members.watch(e, port) }

// watch handles a monitor event of one of the server's ports.
func (m *members) watch(e sockets.Event, port string) {
	if e.Kind != sockets.EventHandshakeSucceeded && e.Kind != sockets.EventDisconnected {
		return
	}
	id, generation, ok := wire.ClientOf(e.Peer)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !ok {
		id = ""
	}
	if e.Kind == sockets.EventDisconnected {
		m.connected.remove(e.Peer)
	} else {
		m.connected.add(e.Peer, port, id)
	}
	if port == portPublisher {
		return
	}
	collector := port == "collector"
	switch {
	case collector && e.Kind == sockets.EventHandshakeSucceeded && m.astray(e.Peer):
		m.peers[e.Peer] = membership{astray: true}
		e.Peer.Disconnect(errAstray)
		return
	case e.Kind == sockets.EventDisconnected:
		counted := ok
		if collector {
			counted = ok && !m.peers[e.Peer].astray
			delete(m.peers, e.Peer)
		}
		if counted {
			m.removeConnection(id, generation, e.Peer)
		}
		return
	case ok:
		who := m.addConnection(id)
		if collector {
			m.newest++
			from := senderOf(e.Peer, who)
			from.Term, from.Generation = m.order.Term(), generation
			m.peers[e.Peer] = membership{sender: from, generation: generation, order: m.newest}
		} else {
			if who.snapshots == nil {
				who.snapshots = map[uint64]*sockets.Peer{}
			}
			who.snapshots[generation] = e.Peer
		}
	case collector:
		m.peers[e.Peer] = membership{sender: sender{From: order.From{By: authorOf(e.Peer)}}}
	}
}

// errFormer is why updates of a former connection are refused.
var errFormer = &kvmsg.MessageError{Reason: kvmsg.ReasonFormerConnection}

// errAstray is the reason for disconnecting a client that follows another server.
var errAstray = errors.New("chp: the client follows another server of the same name")

// astray reports whether a peer has announced that its client follows another server.
func (m *members) astray(p *sockets.Peer) bool {
	id := wire.InstanceOf(p)
	return id != "" && id != m.instance
}

// addConnection adds a connection of a client, and returns the client. mu must be held.
func (m *members) addConnection(id string) *member {
	who := m.byID[id]
	if who == nil {
		who = &member{id: id}
		who.place.Of = who
		m.byID[id] = who
	}
	who.place.Remove()
	who.connections++
	return who
}

// removeConnection removes a connection of a client, and forgets the clients that have
// been without one for too long. mu must be held.
func (m *members) removeConnection(id string, generation uint64, peer *sockets.Peer) {
	who := m.byID[id]
	if who == nil {
		return
	}
	if who.snapshots[generation] == peer {
		delete(who.snapshots, generation)
	}
	if who.connections--; who.connections > 0 {
		return
	}
	who.last = nil
	now := time.Now()
	who.since = now
	m.gone.PushBack(&who.place)
	for oldest := range m.gone.All() {
		if m.gone.Len() <= maxGone && now.Sub(oldest.since) < goneTime {
			break
		}
		oldest.place.Remove()
		delete(m.byID, oldest.id)
	}
}

// senderOf returns the sender that a peer of the client has announced.
func senderOf(p *sockets.Peer, client *member) sender {
	s := sender{member: client}
	s.ID, s.every, s.Numbered = wire.NumberingOf(p)
	wanted, asked := wire.RepliesOf(p)
	s.replies, s.unasked = wanted, wanted && !asked
	s.By = authorOf(p)
	return s
}

// authorOf returns the name that the author of a peer's updates was authenticated with: the
// user's, or with CURVE the public key. It is "" if there is none.
func authorOf(p *sockets.Peer) string {
	if id := p.UserID(); id != "" {
		return id
	}
	if key := p.PublicKey(); !key.IsZero() {
		return key.String()
	}
	return ""
}

// from returns the sender of a batch. former reports that the batch must be refused,
// because the server has accepted updates that the same client sent over a later
// connection, or because the client follows another server. Otherwise from records that
// the server accepts updates of this connection. The collector's goroutine calls it once
// per batch.
func (m *members) from(p *sockets.Peer) (who sender, former bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, known := m.peers[p]
	if !known { // the connection has ended, and the batch was still queued
		id, generation, ok := wire.ClientOf(p)
		if ok {
			from = membership{sender: senderOf(p, m.byID[id]), generation: generation, astray: m.astray(p)}
			from.Generation = generation
		}
	}
	from.ended = !known
	return from.sender, from.astray || from.member != nil && !mutate.NoRepeatCheck && m.replaced(p, from, known)
}

// replaced reports whether the server has accepted updates of a later connection of the
// same client. If not, it records that this is now the latest one. mu must be held.
func (m *members) replaced(p *sockets.Peer, from membership, known bool) bool {
	who := from.member
	if from.generation < who.highest {
		return true
	}
	// A session reconnects to the collectors of other servers by itself. Then updates
	// that arrive late over the previous connection have the same generation.
	if from.generation == who.highest && who.last != nil && p != who.last && (!known || from.order < who.lastOrder) {
		return true
	}
	if p != who.last {
		who.last, who.lastOrder = p, from.order
	}
	who.highest = from.generation
	return false
}

// snapshotPeer returns the snapshot connection of the session to which a connection to
// the collector belongs, or nil. A client that makes several attempts to connect has
// snapshot connections of other sessions too; a refusal does not belong there.
func (m *members) snapshotPeer(collector *sockets.Peer) *sockets.Peer {
	m.mu.Lock()
	defer m.mu.Unlock()
	from := m.peers[collector]
	if from.member == nil {
		return nil
	}
	return from.member.snapshots[from.generation]
}

// Known returns the identities of the known clients, with the numbers of their connections to
// the snapshot port and the collector.
func (c *Clients) Known() map[string]int {
	m := &c.members
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]int{}
	for id, who := range m.byID {
		all[id] = who.connections
	}
	return all
}
