package sockets

import (
	"net"
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
	far      *half  // the other side's end of an inproc connection; else nil

	// Counted once a batch.
	messagesIn, bytesIn   atomic.Uint64
	messagesOut, bytesOut atomic.Uint64
	discarded             atomic.Uint64
}

// Identity returns the identity that a Router addresses the peer by: the
// peer's own, or a generated one of five bytes. For other sockets it is what
// the peer announced, perhaps nothing. The caller must not change it.
func (p *Peer) Identity() []byte { return p.identity }

// RemoteAddr returns the peer's network address.
func (p *Peer) RemoteAddr() string { return p.remote }

// SocketType returns what the peer announced, for example "SUB".
func (p *Peer) SocketType() string { return p.info.SocketType.String() }

// UserID returns who the peer is, as whoever judged its credentials said; see
// Security. It is "" if nobody did.
func (p *Peer) UserID() string { return p.info.UserID }

// PublicKey returns the long-term key that the peer has proved to own, with CURVE:
// that of the client, or of the server. It is zero with another mechanism, and with
// inproc.
func (p *Peer) PublicKey() zmtp.PublicKey { return p.info.PublicKey }

// Property returns a property of the peer, or "", by the names that libzmq has
// for the properties of a message (zmq_msg_gets):
//
//   - Peer-Address, the network address without a port; "" over ipc and inproc;
//   - User-Id, from the authenticator ([Authenticator] or ZAP handler);
//   - any other name for which the authenticator gave a value;
//   - Socket-Type, and Identity, which is also called Routing-Id, as the peer
//     announced them;
//   - names that begin with X-, as the peer announced them.
//
// The first line that has a value decides. So a peer cannot announce what an
// application relies on an authenticator for: only names with X- are the peer's
// to choose, and the authenticator's value comes first even for those. The case
// of name does not matter.
func (p *Peer) Property(name string) string {
	name = strings.ToLower(name)
	switch name {
	case "peer-address":
		host, _, _ := net.SplitHostPort(p.remote) // what has no port is no network address
		return host
	case "user-id":
		return p.info.UserID
	case "routing-id":
		name = "identity"
	}
	if v, ok := p.info.Granted.Get(name); ok {
		return string(v)
	}
	switch {
	case name == "identity":
		return string(p.info.Identity)
	case name == "socket-type" && p.info.SocketType != zmtp.UNKNOWN:
		return p.info.SocketType.String()
	case strings.HasPrefix(name, "x-"):
		v, _ := p.info.Metadata.Get(name)
		return string(v)
	}
	return ""
}

// Disconnect ends the connection, for the reason given (see Event.Err). It does
// not wait for that, and may be called from Prepare. A connecting socket dials
// again.
func (p *Peer) Disconnect(reason error) { p.conn.close(reason) }

// owns reports whether a peer belongs to this socket, connected or not.
func (s *socket) owns(peer *Peer) bool {
	return peer != nil && peer.pipe != nil && peer.pipe.socket == s
}

// PeerStats is a reading of one peer's counters and queues.
type PeerStats struct {
	Endpoint  string // the endpoint that was bound or connected
	Remote    string // network address; "" while not connected
	Identity  []byte
	Connected bool

	MessagesIn, BytesIn   uint64 // received on this connection
	MessagesOut, BytesOut uint64 // written on this connection
	Drops                 uint64 // messages dropped because the queue was full or the peer gone
	Discarded             uint64 // received and thrown away: not subscribed to, or not expected

	QueuedMessages, QueuedBytes int // waiting to be written
	// Received and not yet taken by the application; the bytes are those of the
	// memory that the messages hold.
	PendingMessages, PendingBytes int
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
		all[i].PendingMessages, all[i].PendingBytes = p.in.messages, p.in.cost
	}
	s.in.mu.Unlock()
	slices.SortFunc(all, comparePeers)
	return all
}

// Stats returns a reading of the connection's counters, and of its queues as
// long as it lasts.
func (p *Peer) Stats() PeerStats {
	if p.pipe.peer.Load() != p {
		s := PeerStats{Endpoint: p.pipe.endpoint}
		p.read(&s)
		return s
	}
	s := p.pipe.stats()
	in := &p.pipe.socket.in
	in.mu.Lock()
	s.PendingMessages, s.PendingBytes = p.pipe.in.messages, p.pipe.in.cost
	in.mu.Unlock()
	return s
}

// read fills in what is known of the connection itself.
func (p *Peer) read(s *PeerStats) {
	s.Remote, s.Identity = p.remote, p.identity
	s.MessagesIn, s.BytesIn = p.messagesIn.Load(), p.bytesIn.Load()
	s.MessagesOut, s.BytesOut = p.messagesOut.Load(), p.bytesOut.Load()
	s.Discarded = p.discarded.Load()
}

// stats reads everything but the inbox.
func (p *pipe) stats() PeerStats {
	s := PeerStats{Endpoint: p.endpoint, Identity: p.name}
	if peer := p.peer.Load(); peer != nil {
		s.Connected = true
		peer.read(&s)
	}
	p.out.mu.Lock()
	s.Drops = p.out.drops
	s.QueuedMessages, s.QueuedBytes = p.out.backlog()
	p.out.mu.Unlock()
	return s
}

func comparePeers(a, b PeerStats) int {
	if c := strings.Compare(a.Endpoint, b.Endpoint); c != 0 {
		return c
	}
	return strings.Compare(a.Remote, b.Remote)
}
