package chp

import (
	"container/list"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"clustermap/internal/mutate"
	"clustermap/sockets"
)

// members are the clients of this package that a server knows, by what they
// announce of themselves (propertyClient). It brings together the connections of
// one client, and knows which of those to the collector are former ones: a network
// can deliver what was sent over a connection long after the client has given it
// up, and after what it has sent over the next one.
//
// A client whose connections have all gone is remembered for a while. So the size
// is bounded by the connections and maxGone.
type members struct {
	mu    sync.Mutex
	byID  map[string]*member
	peers map[*sockets.Peer]membership // connections to the collector

	connected map[*sockets.Peer]bool // all connections
	order     uint64                 // of the last connection in peers
	gone      list.List              // of *member without connections, the longest gone first
}

// member is one client.
type member struct {
	id          string
	highest     uint64                   // the highest generation that an update was taken from
	last        *sockets.Peer            // the connection that the last one came over, nil if all have gone
	lastOrder   uint64                   // membership.order of last
	snapshots   map[uint64]*sockets.Peer // its snapshot connections, by generation
	connections int
	unreported  int           // bytes of updates since it was told its progress; of the collector's goroutine
	since       time.Time     // gone since
	place       *list.Element // in members.gone
}

// membership says which client a connection to the collector belongs to; member is
// nil if that is not a client of this package.
type membership struct {
	sender
	generation uint64
	order      uint64 // rises from one connection to the next
}

// How many clients without a connection are remembered, and for how long.
const (
	maxGone  = 4096
	goneTime = 10 * time.Minute
)

func (m *members) init() {
	m.byID = map[string]*member{}
	m.peers = map[*sockets.Peer]membership{}
	m.connected = map[*sockets.Peer]bool{}
}

// identify returns what a peer announced.
func identify(p *sockets.Peer) (id string, generation uint64, ok bool) {
	if id = p.Property(propertyClient); len(id) != clientIDSize {
		return "", 0, false
	}
	generation, err := strconv.ParseUint(p.Property(propertyGeneration), 10, 64)
	return id, generation, err == nil
}

// watch keeps track of the connections to a port.
func (m *members) watch(e sockets.Event, port string) {
	if e.Kind != sockets.HandshakeSucceeded && e.Kind != sockets.Disconnected {
		return
	}
	id, generation, ok := identify(e.Peer)
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Kind == sockets.Disconnected {
		delete(m.connected, e.Peer)
	} else {
		m.connected[e.Peer] = true
	}
	if port == "publisher" {
		return
	}
	collector := port == "collector"
	switch {
	case e.Kind == sockets.Disconnected:
		if collector {
			delete(m.peers, e.Peer)
		}
		if ok {
			m.removeConnection(id, generation, e.Peer)
		}
		return
	case ok:
		who := m.addConnection(id)
		if collector {
			m.order++
			m.peers[e.Peer] = membership{senderOf(e.Peer, who), generation, m.order}
		} else {
			if who.snapshots == nil {
				who.snapshots = map[uint64]*sockets.Peer{}
			}
			who.snapshots[generation] = e.Peer
		}
	case collector:
		m.peers[e.Peer] = membership{}
	}
}

// join counts one more connection of a client, and returns the client. mu must be
// held, here and in leave.
func (m *members) addConnection(id string) *member {
	who := m.byID[id]
	if who == nil {
		who = &member{id: id}
		m.byID[id] = who
	}
	if who.place != nil {
		m.gone.Remove(who.place)
		who.place = nil
	}
	who.connections++
	return who
}

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
	who.place = m.gone.PushBack(who)
	for m.gone.Len() > 0 {
		oldest := m.gone.Front().Value.(*member)
		if m.gone.Len() <= maxGone && now.Sub(oldest.since) < goneTime {
			break
		}
		m.gone.Remove(oldest.place)
		delete(m.byID, oldest.id)
	}
}

// senderOf returns what the peer announced of its updates, given the client that it
// belongs to.
func senderOf(p *sockets.Peer, who *member) sender {
	s := sender{member: who}
	if every, err := strconv.ParseUint(p.Property(propertyOrder), 10, 31); err == nil {
		if _, err := hex.Decode(s.id[:], []byte(p.Property(propertyClient))); err == nil {
			s.numbered, s.every = true, int(every)
		}
	}
	return s
}

// from returns who sent a batch, and whether it must be refused because the server
// has taken updates that the same client sent over a later connection. If not, it
// notes that the server takes it now. It is called once a batch, by the one goroutine
// that takes updates.
func (m *members) from(p *sockets.Peer) (who sender, former bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, known := m.peers[p]
	if !known { // the connection has ended, and this was still queued
		id, generation, ok := identify(p)
		if ok {
			from = membership{sender: senderOf(p, m.byID[id]), generation: generation}
		}
	}
	return from.sender, from.member != nil && !mutate.NoRepeatCheck && m.replaced(p, from, known)
}

// replaced says whether a client's connection has been replaced by a later one that
// the server has taken updates from. If not, it notes that it takes some from this
// one. mu must be held.
func (m *members) replaced(p *sockets.Peer, from membership, known bool) bool {
	who := from.member
	if from.generation < who.highest {
		return true
	}
	// A session dials the collectors of other servers again by itself. Then what the
	// connection before delivers late has the same generation.
	if from.generation == who.highest && who.last != nil && p != who.last && (!known || from.order < who.lastOrder) {
		return true
	}
	if p != who.last {
		who.last, who.lastOrder = p, from.order
	}
	who.highest = from.generation
	return false
}

// snapshotPeer returns the snapshot connection of the session that has the given
// connection to the collector, or nil. A client that connects several times side
// by side has snapshot connections of other sessions as well: those it gives up,
// and on one that is receiving a snapshot a refusal would only be in the way.
func (m *members) snapshotPeer(collector *sockets.Peer) *sockets.Peer {
	m.mu.Lock()
	defer m.mu.Unlock()
	from := m.peers[collector]
	if from.member == nil {
		return nil
	}
	return from.member.snapshots[from.generation]
}

// size returns how many clients are known.
func (m *members) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.byID)
}

// disconnectAll ends the connections of all clients, for the reason given. One that
// only asks how the server is, or for a handover, stays.
func (m *members) disconnectAll(reason error) {
	m.mu.Lock()
	all := slices.Collect(maps.Keys(m.connected))
	m.mu.Unlock()
	for _, p := range all {
		if p.Property(propertyCHP) == "" || p.Property(propertyClient) != "" {
			p.Disconnect(reason)
		}
	}
}
