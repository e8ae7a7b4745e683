package sockets

import (
	"bytes"
	"cmp"
	"net"
	"slices"
	"strings"

	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Peer is a connection to another socket, from its handshake to its end. When a
// peer reconnects, it gets a new Peer. A Peer and its properties remain
// readable after the connection has ended. All methods are safe for concurrent
// use.
type Peer struct {
	pipe     *pipe
	conn     *conn
	info     zmtp.Peer // without Metadata
	extra    []byte    // the properties that the peer announced and Property returns, in wire form
	remote   string
	identity []byte // as a ROUTER knows it: the peer's own or generated
	far      *half  // the other side's end of an inproc connection; otherwise nil

	role any // what the socket type knows of it, from attach on

	conduit queue.Conn // stands for the connection in queues, and counts its messages and bytes
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

// Property returns a property of the peer, and whether the peer has it: a
// property may be present and empty. Names are those of message properties in
// libzmq (zmq_msg_gets) and are not case-sensitive:
//
//   - Peer-Address is the network address without the port; it is absent over
//     ipc and inproc.
//   - User-Id is assigned by the [Authenticator] or ZAP handler; see [User]. It
//     is absent if it is empty.
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
func (p *Peer) Property(name string) (value string, ok bool) {
	name = strings.ToLower(name)
	switch name {
	case "peer-address":
		host, _, err := net.SplitHostPort(p.remote) // an address without a port is not a network address
		return host, err == nil
	case "user-id":
		return p.info.UserID, p.info.UserID != ""
	case "routing-id":
		name = "identity"
	}
	if v, ok := p.info.Granted.Get(name); ok {
		return string(v), true
	}
	switch {
	case name == "identity":
		return string(p.info.Identity), p.info.Identity != nil
	case name == "socket-type" && p.info.SocketType != zmtp.TypeUnknown:
		return p.info.SocketType.String(), true
	case strings.HasPrefix(name, "x-"):
		m, _ := zmtp.ParseMetadata(p.extra) // cannot fail
		v, ok := m.Get(name)
		return string(v), ok
	}
	return "", false
}

// Disconnect closes the connection. The EventDisconnected event reports reason as
// its cause; see Event.Err. Disconnect does not wait until the connection has
// ended and may be called from [Options.Prepare]. A socket that made the
// connection with Connect connects again.
func (p *Peer) Disconnect(reason error) { p.conn.close(reason) }

// newPeer returns the peer at the other end of a connection. Of what it announced, it
// keeps only what can be asked for, in a copy of that size and in wire form: the
// properties may take seven times as much when they are parsed, and they refer to the
// buffer of the handshake. For each connection that would be 130 KiB.
func newPeer(p *pipe, c *conn, info zmtp.Peer, remote string) *Peer {
	var extra []byte
	for _, m := range info.Metadata {
		if len(m.Name) > 2 && strings.EqualFold(m.Name[:2], "x-") {
			extra = zmtp.AppendProperty(extra, m.Name, m.Value)
		}
	}
	info.Metadata = nil
	peer := &Peer{pipe: p, conn: c, info: info, extra: bytes.Clone(extra), remote: remote, identity: info.Identity}
	peer.conduit.Of = peer
	return peer
}

// peerOf returns the peer that a token stands for, or nil for none.
func peerOf(c *queue.Conn) *Peer {
	if c == nil {
		return nil
	}
	return c.Of.(*Peer)
}

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
	MessagesOut, BytesOut uint64 // written on this connection, without those of the write in progress
	Drops                 uint64 // messages dropped because the send queue was full or the peer had disconnected
	Discarded             uint64 // messages received and discarded, for lack of a subscription or as unexpected

	QueuedMessages, QueuedBytes int // waiting to be written, without those of the write in progress

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
	slices.SortFunc(all, comparePeers)
	return all
}

// Stats returns a snapshot of the connection's counters and queues. When the
// connection has ended, the sizes of the queues are zero, and messages queued for that
// connection alone are counted in Drops.
func (p *Peer) Stats() PeerStats {
	if p.pipe.peer.Load() != p {
		s := PeerStats{Endpoint: p.pipe.endpoint, Drops: p.pipe.out.Status().Drops}
		p.read(&s)
		return s
	}
	return p.pipe.stats()
}

// read fills in the fields that belong to the connection itself.
func (p *Peer) read(s *PeerStats) {
	s.Remote, s.Identity = p.remote, p.identity
	c := &p.conduit
	s.MessagesIn, s.BytesIn = c.MessagesIn.Load(), c.BytesIn.Load()
	s.MessagesOut, s.BytesOut = c.MessagesOut.Load(), c.BytesOut.Load()
	s.Discarded = c.Discarded.Load()
}

// stats returns a snapshot of the pipe and its connection.
func (p *pipe) stats() PeerStats {
	s := PeerStats{Endpoint: p.endpoint, Identity: p.name}
	if peer := p.peer.Load(); peer != nil {
		s.Connected = true
		peer.read(&s)
	}
	out := p.out.Status()
	s.Drops, s.QueuedMessages, s.QueuedBytes = out.Drops, out.Messages, out.Bytes
	pending, _, _ := p.socket.in.Look(&p.in)
	s.PendingMessages, s.PendingBytes = pending.Messages, pending.Bytes
	return s
}

// Reads returns a number that changes when anything arrives on one of the present
// connections, be it messages, commands such as PONG, or a new connection itself. It is
// not a count of anything.
func (s *socket) Reads() (sum uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.pipes {
		if peer := p.peer.Load(); peer != nil {
			sum += 1 + peer.conn.life.reads.Load()
		}
	}
	return sum
}

func comparePeers(a, b PeerStats) int {
	return cmp.Or(strings.Compare(a.Endpoint, b.Endpoint), strings.Compare(a.Remote, b.Remote))
}

// Ping sends a PING on every present connection whose peer understands it and whose queue
// is not full. It does not wait. A peer that can be reached answers, which Reads shows.
func (s *socket) Ping() {
	ping := zmtp.AppendPing(nil, 0, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.pipes {
		if peer := p.peer.Load(); peer != nil && peer.info.Major >= 3 {
			p.out.Command(ping)
		}
	}
}
