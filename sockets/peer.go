package sockets

import (
	"slices"
	"strings"
	"sync/atomic"

	"clustermap/zmtp"
)

// Peer is one connection to another socket, from its handshake to its end. A
// peer that reconnects is a new Peer. Safe for concurrent use.
type Peer struct {
	pipe     *pipe
	conn     *conn
	info     zmtp.Peer
	remote   string
	identity []byte // as a ROUTER knows it: own or generated

	// Counted once a batch.
	messagesIn, octetsIn   atomic.Uint64
	messagesOut, octetsOut atomic.Uint64
	discarded              atomic.Uint64
}

// Identity returns the identity that a Router addresses the peer by: the
// peer's own, or a generated one of five octets. For other sockets it is what
// the peer announced, perhaps nothing. The caller must not change it.
func (p *Peer) Identity() []byte { return p.identity }

// RemoteAddr returns the peer's network address.
func (p *Peer) RemoteAddr() string { return p.remote }

// SocketType returns what the peer announced, for example "SUB".
func (p *Peer) SocketType() string { return p.info.SocketType.String() }

// UserID returns who the peer is, as whoever judged its credentials said; see
// Security. It is "" if nobody did.
func (p *Peer) UserID() string { return p.info.UserID }

// Property returns a property of the peer, or "": what whoever judged its
// credentials said of it, User-Id among it, or else what the peer announced in
// its READY command. The case of name does not matter.
func (p *Peer) Property(name string) string {
	if strings.EqualFold(name, propertyUserID) {
		return p.info.UserID // whatever the peer calls itself
	}
	v, ok := p.info.Granted.Get(name)
	if !ok {
		v, _ = p.info.Metadata.Get(name)
	}
	return string(v)
}

// propertyUserID is the name under which the user id is a property, as in
// libzmq.
const propertyUserID = "User-Id"

// Disconnect ends the connection, for the reason given (see Event.Err). It does
// not wait for that, and may be called from Prepare. A connecting socket dials
// again.
func (p *Peer) Disconnect(reason error) { p.conn.close(reason) }

// PeerStats is a reading of one peer's counters and queues.
type PeerStats struct {
	Endpoint  string // the endpoint that was bound or connected
	Remote    string // network address; "" while not connected
	Identity  []byte
	Connected bool

	MessagesIn, OctetsIn   uint64 // received on this connection
	MessagesOut, OctetsOut uint64 // written on this connection
	Drops                  uint64 // messages dropped because the queue was full or the peer gone
	Discarded              uint64 // received and thrown away: not subscribed to, or not expected

	QueuedMessages, QueuedOctets int // waiting to be written
	PendingMessages              int // received and not yet taken by the application
}

// Peers returns a reading of every connection, and of every endpoint that is
// being connected, sorted by endpoint and address.
func (s *socket) Peers() []PeerStats {
	pipes := s.list()
	all := make([]PeerStats, len(pipes))
	for i, p := range pipes {
		all[i] = p.stats()
	}
	s.in.mu.Lock()
	for i, p := range pipes {
		all[i].PendingMessages = p.in.messages
	}
	s.in.mu.Unlock()
	slices.SortFunc(all, comparePeers)
	return all
}

// stats reads everything but the inbox.
func (p *pipe) stats() PeerStats {
	s := PeerStats{Endpoint: p.endpoint}
	if peer := p.peer.Load(); peer != nil {
		s.Remote, s.Identity, s.Connected = peer.remote, peer.identity, true
		s.MessagesIn, s.OctetsIn = peer.messagesIn.Load(), peer.octetsIn.Load()
		s.MessagesOut, s.OctetsOut = peer.messagesOut.Load(), peer.octetsOut.Load()
		s.Discarded = peer.discarded.Load()
	}
	p.out.mu.Lock()
	s.Drops, s.QueuedMessages, s.QueuedOctets = p.out.drops, p.out.queue.messages, p.out.queue.octets
	p.out.mu.Unlock()
	return s
}

func comparePeers(a, b PeerStats) int {
	if c := strings.Compare(a.Endpoint, b.Endpoint); c != 0 {
		return c
	}
	return strings.Compare(a.Remote, b.Remote)
}
