package sockets

import (
	"cmp"
	"net"
	"slices"
	"strings"

	"clustermap/internal/engine"
	"clustermap/zmtp"
)

// Peer is a connection to another socket, from its handshake to its end. When a
// peer reconnects, it gets a new Peer. A Peer and its properties remain
// readable after the connection has ended. All methods are safe for concurrent
// use.
type Peer engine.Peer

func (p *Peer) engine() *engine.Peer { return (*engine.Peer)(p) }

// Identity returns the identity by which a Router addresses the peer: the one
// that the peer announced, the one given to ConnectAs, or a generated one of
// five bytes. On other sockets it is the identity that the peer announced,
// which may be empty. The caller must not modify it.
func (p *Peer) Identity() []byte { return p.engine().Identity() }

// RemoteAddr returns the peer's network address, such as "127.0.0.1:5555". Over
// inproc it is the endpoint.
func (p *Peer) RemoteAddr() string { return p.engine().Remote() }

// SocketType returns the socket type that the peer announced, such as "SUB".
func (p *Peer) SocketType() string { return p.engine().Info().SocketType.String() }

// UserID returns the user ID that the [Authenticator] or ZAP handler assigned
// to the peer, or "" if there is none.
func (p *Peer) UserID() string { return p.engine().Info().UserID }

// PublicKey returns the long-term public key that the peer has proved to own
// with CURVE, for a client as well as for a server. It is zero with other
// mechanisms and over inproc.
func (p *Peer) PublicKey() zmtp.PublicKey { return p.engine().Info().PublicKey }

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
		host, _, err := net.SplitHostPort(p.RemoteAddr()) // an address without a port is not a network address
		return host, err == nil
	case "user-id":
		return p.engine().Info().UserID, p.engine().Info().UserID != ""
	case "routing-id":
		name = "identity"
	}
	if v, ok := p.engine().Info().Granted.Get(name); ok {
		return string(v), true
	}
	switch {
	case name == "identity":
		return string(p.engine().Info().Identity), p.engine().Info().Identity != nil
	case name == "socket-type" && p.engine().Info().SocketType != zmtp.TypeUnknown:
		return p.engine().Info().SocketType.String(), true
	case strings.HasPrefix(name, "x-"):
		return p.engine().Property(name)
	}
	return "", false
}

// Disconnect closes the connection. The EventDisconnected event reports reason as
// its cause; see Event.Err. Disconnect does not wait until the connection has
// ended. A socket that made the
// connection with Connect connects again.
func (p *Peer) Disconnect(reason error) { p.engine().Disconnect(reason) }

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
	pipes := s.core.Pipes()
	all := make([]PeerStats, len(pipes))
	for i, p := range pipes {
		all[i] = statsOf(&s.core, p)
	}
	slices.SortFunc(all, func(a, b PeerStats) int {
		return cmp.Or(strings.Compare(a.Endpoint, b.Endpoint), strings.Compare(a.Remote, b.Remote))
	})
	return all
}

// Stats returns a snapshot of the connection's counters and queues. When the
// connection has ended, the sizes of the queues are zero, and messages queued for that
// connection alone are counted in Drops.
func (p *Peer) Stats() PeerStats {
	pipe := p.engine().Pipe()
	if !p.engine().Connected() {
		s := PeerStats{Endpoint: pipe.Endpoint, Drops: pipe.Out.Status().Drops}
		p.read(&s)
		return s
	}
	return statsOf(pipe.Socket(), pipe)
}

// read fills in the fields that belong to the connection itself.
func (p *Peer) read(s *PeerStats) {
	s.Remote, s.Identity = p.RemoteAddr(), p.Identity()
	c := p.engine().Conn()
	s.MessagesIn, s.BytesIn = c.MessagesIn.Load(), c.BytesIn.Load()
	s.MessagesOut, s.BytesOut = c.MessagesOut.Load(), c.BytesOut.Load()
	s.Discarded = c.Discarded.Load()
}

// statsOf returns a snapshot of a pipe and its connection.
func statsOf(core *engine.Socket, p *engine.Pipe) PeerStats {
	s := PeerStats{Endpoint: p.Endpoint, Identity: p.Name}
	if peer := p.Peer(); peer != nil {
		s.Connected = true
		(*Peer)(peer).read(&s)
	}
	out := p.Out.Status()
	s.Drops, s.QueuedMessages, s.QueuedBytes = out.Drops, out.Messages, out.Bytes
	pending, _, _ := core.In.Look(&p.In)
	s.PendingMessages, s.PendingBytes = pending.Messages, pending.Bytes
	return s
}
