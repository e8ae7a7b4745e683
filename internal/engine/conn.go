package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/bounds"
	"clustermap/internal/link"
	"clustermap/internal/queue"
	"clustermap/zmtp"
)

// conn is one network connection. Two goroutines serve it: the one that has
// dialled or accepted it performs the handshake and then reads, and another one
// writes.
type conn struct {
	stream link.Stream
	config *Config       // the one in effect when the connection began
	gone   chan struct{} // closed when the connection must end
	place  uint64        // pipe.Place, if the connection was accepted
	life   lifeline

	guest bounds.Guest // of the socket's admission

	halfClosed atomic.Bool // we have closed our side and expect the peer to close its own

	mu     sync.Mutex
	closed bool
	reason error // the reason, if we have closed it
}

func newConn(nc net.Conn, o *Config) (*conn, error) {
	c := &conn{config: o, gone: make(chan struct{})}
	c.guest.Conn = c
	if err := c.stream.Init(nc); err != nil {
		nc.Close()
		return nil, err
	}
	return c, nil
}

// close makes the connection end: its reader and writer return, and then the
// goroutine that serves it calls finish. Only the first reason is kept. close
// never waits, so it may be called from anywhere, with any lock held.
//
// It leaves the descriptor open, because closing the descriptor waits until no
// read or write is in progress. The reader may be inside a read for as long as
// the application leaves its inbox full, or be waiting for the publisher's
// mutex, which the caller may hold, or be the caller itself (Prepare may
// disconnect the peer). A deadline in the past wakes both goroutines without
// waiting for them.
func (c *conn) Close(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if reason == nil {
		reason = net.ErrClosed
	}
	c.closed, c.reason = true, reason
	close(c.gone)
	if c.stream.Conn != nil { // not inproc
		// This fails on a connection that is already closed, where nothing
		// waits.
		_ = c.stream.Conn.SetDeadline(time.Unix(1, 0))
	}
}

// setDeadline sets the deadline for reading and writing, or removes it.
func (c *conn) setDeadline(t time.Time) error {
	return c.limit(func() error { return c.stream.Conn.SetDeadline(t) })
}

// setReadDeadline sets the deadline for reading, or removes it.
func (c *conn) setReadDeadline(t time.Time) error {
	return c.limit(func() error { return c.stream.Conn.SetReadDeadline(t) })
}

// limit sets a deadline unless close has already set the last one.
func (c *conn) limit(set func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.reason
	}
	return set()
}

// finish closes the descriptor. Nothing reads or writes any more.
func (c *conn) finish() {
	c.Close(net.ErrClosed)
	if tc, ok := c.stream.Conn.(*net.TCPConn); ok && errors.Is(c.cause(nil), queue.ErrSlowPeer) {
		// The kernel may hold megabytes for a peer that does not read. Drop
		// them now, so that the peer notices now, not when it has read them or
		// the kernel has given it up.
		_ = tc.SetLinger(0)
	}
	c.stream.Conn.Close()
}

// cause returns why the connection has ended: our reason if we have closed it,
// and otherwise seen.
func (c *conn) cause(seen error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.reason
	}
	return seen
}

// Gone implements bounds.Conn.
func (c *conn) Gone() <-chan struct{} { return c.gone }

// Local implements bounds.Conn.
func (c *conn) Local() bool { return link.Local(c.stream.Conn) }

// ending reports whether the connection must end.
func (c *conn) ending() bool { return isClosed(c.gone) }

// handshakeBuffer is the size of the buffer for one read of a handshake. A
// greeting and a READY usually fit; longer ones are read in pieces.
const handshakeBuffer = 512

// MaxHandshakeCommand limits the size of READY. It leaves room for a few
// kilobytes of metadata.
const MaxHandshakeCommand = 16 << 10

// session is the result of a handshake.
type session struct {
	peer  zmtp.Peer
	codec zmtp.Codec // translates the traffic; nil for plain frames
	early []byte     // bytes of traffic that have arrived with the handshake

	refused bool // the handshake has failed and an ERROR was sent
}

// handshake exchanges greetings and the commands of the security mechanism.
func (s *Socket) handshake(c *conn) (session, error) {
	if s.kind == zmtp.TypeStream {
		return session{peer: zmtp.Peer{SocketType: zmtp.TypeUnknown}}, nil
	}
	nc := c.stream.Conn
	deadline := time.Now().Add(c.config.HandshakeTimeout)
	if err := c.setDeadline(deadline); err != nil {
		return session{}, err
	}
	config := zmtp.HandshakeConfig{
		SocketType: s.kind,
		Identity:   c.config.Identity,
		Metadata:   c.config.Metadata,
		Limits:     zmtp.Limits{MaxCommand: MaxHandshakeCommand, MaxMessage: s.maxMessage(c.config)},
		MinVersion: uint8(c.config.MinVersion),
	}
	config.Mechanism = c.config.Security.Mechanism(&config, s.Tuning.CookieLifetime)
	h := zmtp.NewHandshake(config)
	defer h.Abandon() // erases the keys if the connection is lost
	w := handshakeWriter{stream: &c.stream}
	defer w.abandon(c)
	if err := w.write(h.Start(nil)); err != nil {
		return session{}, err
	}
	var in, out []byte
	part := make([]byte, handshakeBuffer)
	answered := false // the peer has sent a command
	for {
		next := deadline
		if expires := h.Expires(); !expires.IsZero() && expires.Before(next) {
			next = expires
		}
		if err := c.setReadDeadline(next); err != nil {
			return session{}, err
		}
		n, err := nc.Read(part)
		c.stream.Moved.Add(int64(n))
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
				if err := w.write(out); err != nil && stepErr == nil {
					return session{}, err
				}
			}
			if stepErr != nil {
				_ = w.flush() // stepErr is more useful
				return session{refused: len(out) > 0}, stepErr
			}
			if done {
				if err := w.flush(); err != nil {
					return session{}, err
				}
				return session{peer: h.Peer(), codec: h.Codec(), early: in}, c.setDeadline(time.Time{})
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
	defer c.finish()
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
	remote := link.RemoteText(c.stream.Conn)
	opened, err := s.handshake(c)
	if err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			err = bounds.ErrHandshakeTimeout
		}
		err = s.notEstablished(c, endpoint, remote, err)
		if opened.refused {
			c.farewell()
		}
		return nil, err
	}
	if c.config.Link.SendBuffer == 0 {
		c.stream.BoundSendBuffer()
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
		if !s.In.Settled(&p.In, c.gone) {
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
// unless Close has ended it, and returns the error with the peer's address.
func (s *Socket) notEstablished(c *conn, endpoint, remote string, err error) error {
	err = c.cause(err)
	if errors.Is(err, io.EOF) {
		hint := ""
		if errors.Is(err, ErrServerKey) {
			hint = " (wrong server key?)"
		}
		err = fmt.Errorf("closed during the handshake%s: %w", hint, err)
	}
	err = &PeerError{remote, err}
	if !s.closes(c, err) {
		s.report(Event{Kind: HandshakeFailed, Endpoint: endpoint, Remote: remote, Err: err})
	}
	return err
}

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
	err := c.cause(x.reader.run(early))
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
	p.peer.Store(nil)
	s.In.Peers(-1)
	if !x.reader.ignore {
		s.peers.add(-1)
		s.pattern.detach(p, peer)
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
	return s.shut.Load() && (c.halfClosed.Load() || errors.Is(err, queue.ErrClosed))
}

// connected makes an established connection known to the socket. If it returns an
// error, the peer's messages are ignored.
func (s *Socket) connected(p *Pipe, peer *Peer) (refused error) {
	p.Out.Attach(&peer.conduit)
	if hello := peer.conn.config.Hello; hello != nil {
		p.Out.Precede(hello, 1)
	}
	s.In.Peers(1)
	refused = s.pattern.attach(p, peer)
	p.peer.Store(peer) // after attach, which may set its identity
	s.In.Tell()
	if refused == nil {
		s.peers.add(1)
	}
	s.report(Event{Kind: HandshakeSucceeded, Endpoint: p.Endpoint, Remote: peer.remote, Peer: peer})
	if refused != nil {
		s.report(Event{Kind: PeerIgnored, Endpoint: p.Endpoint, Remote: peer.remote, Peer: peer, Err: &PeerError{peer.remote, refused}})
	}
	return refused
}

// halfClose closes our direction and gives the peer time to close its own.
// Closing both at once would cause a reset if there is unread input or more
// input arrives, and a reset destroys bytes that the peer's system has not
// received yet.
//
// halfClose returns when the peer has closed its side. Otherwise it returns
// halfCloseWait after the peer's system has received everything, or when that
// system has received nothing for LingerPatience.
func (c *conn) halfClose(ctx context.Context) {
	c.halfClosed.Store(true)
	if !c.closeWrite(ctx) {
		return
	}
	look := time.Tick(halfCloseWait)
	idle := time.Duration(0)
	for left := c.stream.Unconfirmed(); ; {
		select {
		case <-c.gone:
			return
		case <-ctx.Done():
			return
		case <-look:
		}
		before := left
		idle += halfCloseWait
		if left = c.stream.Unconfirmed(); left < before {
			idle = 0
		}
		if left == 0 || idle >= LingerPatience {
			return
		}
	}
}

// closeWrite closes our direction, and reports whether that was possible.
func (c *conn) closeWrite(ctx context.Context) bool {
	cw, ok := c.stream.Conn.(interface{ CloseWrite() error })
	if !ok {
		return false
	}
	if !c.stream.Buffered() { // it may wait for the peer, as that of a *tls.Conn does
		stop := context.AfterFunc(ctx, func() { c.Close(queue.ErrClosed) })
		defer stop()
	}
	return cw.CloseWrite() == nil
}

// halfCloseWait is how long a peer may take to close its side when it has
// received everything.
const halfCloseWait = 250 * time.Millisecond
