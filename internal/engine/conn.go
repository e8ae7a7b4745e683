package engine

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"clustermap/internal/bounds"
	"clustermap/internal/connection"
	"clustermap/internal/link"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// conn is a connection of a socket. Two goroutines serve it: the one that has
// dialled or accepted it performs the handshake and then reads, and another one
// writes.
type conn struct {
	connection.Conn
	config *Config // the one in effect when the connection began
	place  uint64  // pipe.Place, if the connection was accepted
	guest  bounds.Guest

	key  int  // that the server is taken to have; see Security.ServerKeys
	more bool // if it has another one, the next connection tries that
}

// newConn returns a connection; nc is nil over inproc.
func newConn(nc net.Conn, o *Config) (*conn, error) {
	c := &conn{config: o}
	c.guest.Conn = c
	return c, c.Init(nc)
}

// session is the result of a handshake.
type session struct {
	peer  zmtp.Peer
	codec zmtp.Codec // translates the traffic; nil for plain frames
	early []byte     // bytes of traffic that have arrived with the handshake

	refused bool // the handshake has failed and an ERROR was sent
}

// oldSubscribeAll is a subscription to everything in ZMTP 1.0 framing.
const oldSubscribeAll = "\x02\x00\x01"

// subscribeAll adds a subscription to everything, before anything else that the
// peer sends, if the peer is a subscriber that does not send its subscriptions
// but filters messages itself. libzmq does the same.
func (s *session) subscribeAll(kind zmtp.SocketType) {
	if (kind == zmtp.TypePub || kind == zmtp.TypeXPub) && !s.peer.SendsSubscriptions() {
		s.early = append([]byte(oldSubscribeAll), s.early...)
	}
}

// handshake exchanges greetings and the commands of the security mechanism.
func (s *Socket) handshake(c *conn) (session, error) {
	if s.kind == zmtp.TypeStream {
		return session{peer: zmtp.Peer{SocketType: zmtp.TypeUnknown}}, nil
	}
	nc := c.Stream.Conn
	deadline := time.Now().Add(c.config.HandshakeTimeout)
	if err := c.SetDeadline(deadline); err != nil {
		return session{}, err
	}
	config := zmtp.HandshakeConfig{
		SocketType: s.kind,
		Identity:   c.config.Identity,
		Metadata:   c.config.Metadata,
		Limits:     zmtp.Limits{MaxCommand: MaxHandshakeCommand, MaxMessage: s.maxMessage(c.config)},
		MinVersion: uint8(c.config.MinVersion),
	}
	config.Mechanism = c.config.Security.Mechanism(&config, s.Tuning.CookieLifetime, c.key)
	h := zmtp.NewHandshake(config)
	defer h.Abandon() // erases the keys if the connection is lost
	w := connection.HandshakeWriter{Conn: &c.Conn}
	defer w.Abandon()
	if err := w.Write(h.Start(nil)); err != nil {
		return session{}, err
	}
	var in, out []byte
	part := make([]byte, connection.HandshakeBuffer)
	answered := false // the peer has sent a command
	for {
		next := deadline
		if expires := h.Expires(); !expires.IsZero() && expires.Before(next) {
			next = expires
		}
		if err := c.SetReadDeadline(next); err != nil {
			return session{}, err
		}
		n, err := nc.Read(part)
		c.Stream.Moved.Add(int64(n))
		in = append(in, part[:n]...)
		if n == 0 && err != nil {
			if errors.Is(err, io.EOF) && !answered && h.Peer().Major > 0 && c.config.Security.CurveClient {
				err = fmt.Errorf("%w: %w", ErrServerKey, err)
			}
			return session{}, err
		}
		for advanced := false; ; {
			greeted := h.Peer().Major > 0
			used, reply, done, stepErr := h.Step(in, out[:0])
			answered = answered || greeted && used > 0
			in = in[used:]
			_, waiting := h.Credentials()
			if waiting {
				in, reply, done, stepErr = s.authenticate(c, h, in, reply, deadline)
			}
			advanced = advanced || used > 0
			if advanced && !done && (waiting || used == 0) {
				s.admission.Advanced(&c.guest)
			}
			out = reply
			if len(out) > 0 {
				if err := w.Write(out); err != nil && stepErr == nil {
					return session{}, err
				}
			}
			if stepErr != nil {
				_ = w.Flush() // stepErr is more useful
				return session{refused: len(out) > 0}, stepErr
			}
			if done {
				if err := w.Flush(); err != nil {
					return session{}, err
				}
				return session{peer: h.Peer(), codec: h.Codec(), early: in}, c.SetDeadline(time.Time{})
			}
			if used == 0 && !waiting {
				break
			}
		}
	}
}

// dialogue is a connection after its handshake, with the state of its two
// goroutines.
type dialogue struct {
	reader  reader
	writer  writer
	writers sync.WaitGroup // goroutines: the writer, one that retires, and one that waits for newcomer.wait
	early   []byte         // bytes that have arrived with the handshake
}

// serve runs an open connection on pipe p until it ends, and returns the
// reason. If p is nil, serve makes a pipe when the handshake has succeeded.
//
// It consists of three functions, because the stack of the goroutine that waits
// for bytes in the second one is much of the cost of an idle connection: the
// size of its frames decides whether the stack can shrink.
func (s *Socket) serve(c *conn, p *Pipe, endpoint string, established func()) error {
	defer c.Finish()
	x, err := s.establish(c, p, endpoint, established)
	if err != nil {
		return err
	}
	return x.end(x.run())
}

// establish performs the handshake and makes the peer known to the socket.
//
//go:noinline
func (s *Socket) establish(c *conn, p *Pipe, endpoint string, established func()) (*dialogue, error) {
	remote := link.RemoteText(c.Stream.Conn)
	opened, err := s.handshake(c)
	if err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			err = bounds.ErrHandshakeTimeout
		}
		err = s.notEstablished(c, endpoint, remote, err)
		switch protocol := (*zmtp.ProtocolError)(nil); {
		case opened.refused:
			c.Farewell()
		case p == nil && !errors.As(err, &protocol):
			c.Drop() // a client could take an end in good order for ErrServerKey
		}
		return nil, err
	}
	if c.config.Link.SendBuffer == 0 {
		c.Stream.BoundSendBuffer()
	}
	if p == nil {
		p = NewPipe(s, endpoint, false)
		p.Place = c.place // handshakes may end in another order
	}
	opened.subscribeAll(s.kind)
	peer := newPeer(p, c, opened.peer, remote)
	if err := s.admission.Announced(&c.guest, len(peer.extra)); err != nil {
		return nil, s.notEstablished(c, endpoint, remote, err)
	}
	if c.config.Notices {
		s.admission.WaitsForUs(&c.guest) // the peer has completed its steps
		if !s.In.Settled(&p.In, c.Gone()) {
			return nil, s.notEstablished(c, endpoint, remote, queue.ErrClosed)
		}
	}
	if err := s.admission.Seat(&c.guest, func() bool {
		operator := s.Config().Operator
		return operator != nil && operator(peer)
	}); err != nil {
		return nil, s.notEstablished(c, endpoint, remote, err)
	}
	if !s.enter(p) {
		return nil, s.notEstablished(c, endpoint, remote, queue.ErrClosed)
	}
	established()
	p.joinClient(peer)
	refused := s.connected(p, peer)
	n, _ := errors.AsType[*Newcomer](refused)
	return &dialogue{
		reader: reader{pipe: p, peer: peer, conn: c, codec: opened.codec, newcomer: n, ignore: refused != nil && n == nil},
		writer: writer{pipe: p, peer: peer, conn: c, codec: opened.codec},
		early:  opened.early,
	}, nil
}

// notEstablished reports a connection that has ended before it was established,
// unless Close has ended it or another key of the server is tried next, and returns the error with the peer's address.
func (s *Socket) notEstablished(c *conn, endpoint, remote string, err error) error {
	err = c.Cause(err)
	if errors.Is(err, io.EOF) {
		hint := ""
		if errors.Is(err, ErrServerKey) {
			hint = " (wrong server key?)"
		}
		err = fmt.Errorf("closed during the handshake%s: %w", hint, err)
	}
	err = &PeerError{remote, err}
	if !s.closes(c, err) && !c.nextKey(err) {
		s.report(Event{Kind: HandshakeFailed, Endpoint: endpoint, Remote: remote, Err: err})
	}
	return err
}

// nextKey reports whether a connection has ended because the server has another key than it was taken
// to have, and there is one that was not tried.
func (c *conn) nextKey(err error) bool { return c.more && errors.Is(err, ErrServerKey) }

// run reads and writes until the connection ends, and returns the reason.
func (x *dialogue) run() error {
	p, c := x.reader.pipe, x.reader.conn
	o := c.config
	p.Out.Launch(x.write, x.writer.direct(), o.HeartbeatInterval > 0) // PINGs are the writer's own
	rejected := false
	if n := x.reader.newcomer; n != nil {
		x.writers.Go(func() { rejected = !n.wait(o.HandshakeTimeout) })
	}
	early := x.early
	x.early = nil
	err := c.Cause(x.reader.run(early))
	c.Close(err)
	p.Out.Halt()
	x.writers.Wait()
	x.reader.ignore = x.reader.ignore || rejected
	return err
}

// write starts the writer.
func (x *dialogue) write() { x.writers.Go(x.writer.run) }

// end makes the end of the connection known, and returns the reason.
//
//go:noinline
func (x *dialogue) end(err error) error {
	p, peer := x.reader.pipe, x.reader.peer
	s := p.socket
	s.totals.ended(p, peer)
	s.In.Peers(-1)
	if !x.reader.ignore {
		s.countPeers(-1)
		s.pattern.Detach(p, peer)
		s.tellEnd(p, peer)
	}
	if t := s.pattern; p.Lasting && (t.Keeps && !p.Immediate || p.Name != nil && !t.Raw) {
		p.Out.PutBack(&x.writer.load)
	} else {
		x.writer.load.Clear()
		p.Out.Discard()
	}
	if !p.Lasting {
		s.In.Leave(&p.In)
		s.leave(p)
	}
	s.In.Tell()
	err = &PeerError{peer.remote, err}
	if !s.closes(peer.conn, err) {
		s.report(Event{Kind: Disconnected, Endpoint: p.Endpoint, Remote: peer.remote, Peer: peer, Err: err})
	}
	return err
}

// closes reports whether a connection that has ended with err did so because
// the application has closed this socket. Such connections are not reported to
// the monitor.
func (s *Socket) closes(c *conn, err error) bool {
	return s.shut.Load() && (c.HalfClosed() || errors.Is(err, queue.ErrClosed))
}

// connected makes an established connection known to the socket. If it returns an
// error, the peer's messages are ignored.
func (s *Socket) connected(p *Pipe, peer *Peer) (refused error) {
	p.Out.Attach(&peer.conduit)
	s.totals.began(p)
	if hello := peer.conn.config.Hello; hello != nil {
		p.Out.Precede(hello, 1)
	}
	s.In.Peers(1)
	refused = s.pattern.Attach(p, peer)
	p.peer.Store(peer) // after attach, which may set its identity
	s.In.Tell()
	if refused == nil {
		s.countPeers(1)
	}
	s.report(Event{Kind: HandshakeSucceeded, Endpoint: p.Endpoint, Remote: peer.remote, Peer: peer})
	if refused != nil {
		s.report(Event{Kind: PeerIgnored, Endpoint: p.Endpoint, Remote: peer.remote, Peer: peer, Err: &PeerError{peer.remote, refused}})
	}
	return refused
}
