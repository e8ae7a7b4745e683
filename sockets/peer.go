package sockets

import (
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"clustermap/zmtp"
)

// Peer is a connection to another socket, from its handshake to its end. When a
// peer reconnects, it gets a new Peer. A Peer and its properties remain
// readable after the connection has ended. All methods are safe for concurrent
// use.
type Peer struct {
	pipe     *pipe
	conn     *conn
	info     zmtp.Peer
	remote   string
	identity []byte // as a ROUTER knows it: the peer's own or generated
	far      *half  // the other side's end of an inproc connection; otherwise nil

	// Counted once per batch.
	messagesIn, bytesIn   atomic.Uint64
	messagesOut, bytesOut atomic.Uint64
	discarded             atomic.Uint64
}

// Identity returns the identity by which a Router addresses the peer: the one
// that the peer announced, the one given to ConnectAs, or a generated one of
// five bytes. On other sockets it is the identity that the peer announced,
// which may be empty. The caller must not modify it.
func (p *Peer) Identity() []byte { return p.identity }

// RemoteAddr returns the peer's network address, such as "127.0.0.1:5555". Over
// inproc it is the endpoint.
func (p *Peer) RemoteAddr() string { return p.remote }

// SocketType returns the socket type that the peer announced, such as "SUB".
func (p *Peer) SocketType() string { return p.info.SocketType.String() }

// UserID returns the user ID that the [Authenticator] or ZAP handler assigned
// to the peer, or "" if there is none.
func (p *Peer) UserID() string { return p.info.UserID }

// PublicKey returns the long-term public key that the peer has proved to own
// with CURVE, for a client as well as for a server. It is zero with other
// mechanisms and over inproc.
func (p *Peer) PublicKey() zmtp.PublicKey { return p.info.PublicKey }

// Property returns a property of the peer, or "" if it has no such property.
// Names are those of message properties in libzmq (zmq_msg_gets) and are not
// case-sensitive:
//
//   - Peer-Address is the network address without the port; it is "" over ipc
//     and inproc.
//   - User-Id is assigned by the [Authenticator] or ZAP handler; see [User].
//   - Any other name may be assigned by the Authenticator or ZAP handler.
//   - Socket-Type and Identity, also named Routing-Id, are announced by the
//     peer.
//   - Names that begin with X- are announced by the peer; see
//     [Options.Metadata].
//
// If a name has several values, the first one in this order is returned. So a
// peer cannot announce a property that the application expects the
// authenticator to assign: a peer can only choose names that begin with X-, and
// even for these the authenticator's value takes precedence.
func (p *Peer) Property(name string) string {
	name = strings.ToLower(name)
	switch name {
	case "peer-address":
		host, _, _ := net.SplitHostPort(p.remote) // an address without a port is not a network address
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

// Disconnect closes the connection. The Disconnected event reports reason as
// its cause; see Event.Err. Disconnect does not wait until the connection has
// ended and may be called from [Options.Prepare]. A socket that made the
// connection with Connect connects again.
func (p *Peer) Disconnect(reason error) { p.conn.close(reason) }

// owns reports whether a peer belongs to this socket, connected or not.
func (s *socket) owns(peer *Peer) bool {
	return peer != nil && peer.pipe != nil && peer.pipe.socket == s
}

// PeerStats is a snapshot of the counters and queues of one connection.
type PeerStats struct {
	Endpoint  string // endpoint that was bound or connected
	Remote    string // network address of the peer; "" while not connected
	Identity  []byte // see Peer.Identity
	Connected bool   // whether the connection is established

	MessagesIn, BytesIn   uint64 // received on this connection
	MessagesOut, BytesOut uint64 // written on this connection
	Drops                 uint64 // messages dropped because the send queue was full or the peer had disconnected
	Discarded             uint64 // messages received and discarded, for lack of a subscription or as unexpected

	QueuedMessages, QueuedBytes int // waiting to be written

	// PendingMessages and PendingBytes have been received from the peer but not
	// yet by the application. PendingBytes counts the memory that the messages
	// occupy.
	PendingMessages, PendingBytes int
}

// Peers returns a snapshot of every connection and of every endpoint that is
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

// Stats returns a snapshot of the connection's counters and queues. When the
// connection has ended, the sizes of the queues are zero.
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

// read fills in the fields that belong to the connection itself.
func (p *Peer) read(s *PeerStats) {
	s.Remote, s.Identity = p.remote, p.identity
	s.MessagesIn, s.BytesIn = p.messagesIn.Load(), p.bytesIn.Load()
	s.MessagesOut, s.BytesOut = p.messagesOut.Load(), p.bytesOut.Load()
	s.Discarded = p.discarded.Load()
}

// stats fills in everything except the state of the inbox.
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
