package engine

import (
	"bytes"
	"strings"

	"clustermap/internal/link"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// Peer is a connection to another socket, from its handshake to its end. Its fields are
// hidden because sockets.Peer is a type with the same ones.
type Peer struct {
	pipe     *Pipe
	conn     *conn
	info     zmtp.Peer // without Metadata
	extra    []byte    // the properties that the peer announced and that can be asked for, in wire form
	remote   string
	identity []byte // as a ROUTER knows it: the peer's own or generated
	far      *half  // the other side's end of an inproc connection; otherwise nil
	role     any    // what the socket type knows of it, from Attach on

	conduit queue.Conn // stands for the connection in queues, and counts its messages and bytes
}

// newPeer returns the peer at the other end of a connection. Of what it announced, it
// keeps only what can be asked for, in a copy of that size and in wire form: the
// properties may take seven times as much when they are parsed, and they refer to the
// buffer of the handshake. For each connection that would be 130 KiB.
func newPeer(p *Pipe, c *conn, info zmtp.Peer, remote string) *Peer {
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

// NewPeer returns a peer to which there is no connection of the network.
func NewPeer(p *Pipe, info zmtp.Peer) *Peer {
	c, _ := newConn(nil, p.socket.Config()) // fails only with a connection
	return newPeer(p, c, info, p.Endpoint)
}

// PeerOf returns the peer that a token stands for, or nil for none.
func PeerOf(c *queue.Conn) *Peer {
	if c == nil {
		return nil
	}
	return c.Of.(*Peer)
}

// Pipe returns the queues between the socket and the peer.
func (p *Peer) Pipe() *Pipe { return p.pipe }

// Conn returns the token that stands for the connection in queues.
func (p *Peer) Conn() *queue.Conn { return &p.conduit }

// Config returns the options in effect when the connection began.
func (p *Peer) Config() *Config { return p.conn.config }

// Gone returns a channel that is closed when the connection must end.
func (p *Peer) Gone() <-chan struct{} { return p.conn.Gone() }

// Info returns what the peer announced, without metadata. Property returns a property that it
// announced whose name begins with x-.
func (p *Peer) Info() *zmtp.Peer { return &p.info }

// Property is described at Info.
func (p *Peer) Property(name string) (value string, ok bool) {
	m, _ := zmtp.ParseMetadata(p.extra) // cannot fail
	v, ok := m.Get(name)
	return string(v), ok
}

// Stream returns the connection of the network.
func (p *Peer) Stream() *link.Stream { return &p.conn.Stream }

// Reads returns a number that is odd while received bytes are handled, and that each read
// increases by two.
func (p *Peer) Reads() uint64 { return p.conn.Reads() }

// Remote returns the network address, or over inproc the endpoint.
func (p *Peer) Remote() string { return p.remote }

// Identity returns the identity by which a ROUTER knows the peer, which Attach may set.
func (p *Peer) Identity() []byte { return p.identity }

// SetIdentity is called by Attach.
func (p *Peer) SetIdentity(id []byte) { p.identity = id }

// Role returns what Attach has kept here for the socket type.
func (p *Peer) Role() any { return p.role }

// SetRole is called by Attach.
func (p *Peer) SetRole(role any) { p.role = role }

// BelongsTo reports whether the peer is, or was, one of a socket.
func (p *Peer) BelongsTo(s *Socket) bool { return p != nil && p.pipe != nil && p.pipe.socket == s }

// Connected reports whether this is the connection that the pipe has now.
func (p *Peer) Connected() bool { return p.pipe.peer.Load() == p }

// Disconnect ends the connection, and does not wait for that. Over inproc the connection ends
// in another goroutine, and meanwhile the peer may make room; it gets no messages that are
// sent from now on.
func (p *Peer) Disconnect(reason error) {
	if p.far != nil {
		p.pipe.Out.Seal()
	}
	p.conn.Close(reason)
}

// Taken returns how many queued bytes the operating system, or over inproc the
// other socket, has taken from the connection.
func (p *Peer) Taken() int64 {
	if p.far != nil {
		return int64(p.conduit.BytesOut.Load())
	}
	return p.conn.Stream.Moved.Load()
}

// Request queues command frames. If the peer accepts none for so long that they reach the
// high-water mark, it is disconnected.
func (p *Peer) Request(frames []byte) {
	if !p.pipe.Out.Command(frames) {
		p.conn.Close(queue.ErrSlowPeer)
	}
}

// Eager reports whether the peer's socket handles commands when they are sent, rather
// than when they arrive; Pump lets it do that, with no lock held.
func (p *Peer) Eager() bool { return p.far != nil && p.far.eager }

// Pump is described at Eager.
func (p *Peer) Pump() { p.far.pump() }

// Hold keeps the other side of an inproc connection from fetching until release is called.
func (p *Peer) Hold() (release func()) {
	p.far.fetching.Lock()
	return p.far.fetching.Unlock
}
