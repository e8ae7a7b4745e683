package sockets

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"clustermap/zmtp"
)

// conn is one network connection. Two goroutines serve it: the one that dialled
// or accepted it does the handshake and then reads; another one writes.
type conn struct {
	stream stream
	gone   chan struct{} // closed when the connection has been closed, by whomever

	mu     sync.Mutex
	closed bool
	reason error // why, if we closed it
}

func newConn(nc net.Conn) (*conn, error) {
	c := &conn{gone: make(chan struct{})}
	if err := c.stream.init(nc); err != nil {
		nc.Close()
		return nil, err
	}
	return c, nil
}

// close ends the connection; its reader and writer return. The first reason
// stays.
func (c *conn) close(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed, c.reason = true, reason
	c.stream.conn.Close()
	close(c.gone)
}

// cause returns why the connection ended: our reason if it was us.
func (c *conn) cause(seen error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed && c.reason != nil {
		return c.reason
	}
	return seen
}

// handshakeBuffer is the space for one read of a handshake: a greeting and a
// READY fit with plenty to spare, and longer ones come in pieces.
const handshakeBuffer = 512

// handshake exchanges greetings and READY, and returns the peer and the octets
// of traffic that came along.
func (s *socket) handshake(c *conn) (zmtp.Peer, []byte, error) {
	nc := c.stream.conn
	if err := nc.SetDeadline(time.Now().Add(s.opts.HandshakeTimeout)); err != nil {
		return zmtp.Peer{}, nil, err
	}
	h := zmtp.NewHandshake(zmtp.HandshakeConfig{
		SocketType: s.kind,
		Identity:   s.opts.Identity,
		Metadata:   s.opts.metadata(),
		Limits:     zmtp.Limits{MaxCommand: maxHandshakeCommand},
	})
	if _, err := nc.Write(h.Start(nil)); err != nil {
		return zmtp.Peer{}, nil, err
	}
	var in, out []byte
	part := make([]byte, handshakeBuffer)
	for {
		n, err := nc.Read(part)
		in = append(in, part[:n]...)
		if n == 0 && err != nil {
			return zmtp.Peer{}, nil, err
		}
		for {
			used, reply, done, stepErr := h.Step(in, out[:0])
			out = reply
			if len(out) > 0 {
				if _, err := nc.Write(out); err != nil && stepErr == nil {
					return zmtp.Peer{}, nil, err
				}
			}
			if stepErr != nil {
				return zmtp.Peer{}, nil, stepErr
			}
			in = in[used:]
			if done {
				return h.Peer(), in, nc.SetDeadline(time.Time{})
			}
			if used == 0 {
				break
			}
		}
	}
}

// maxHandshakeCommand bounds READY: room for a few kilobytes of metadata.
const maxHandshakeCommand = 16 << 10

// serve runs an open connection on pipe p until it ends, and returns why. A
// nil pipe is made once the handshake has succeeded.
func (s *socket) serve(c *conn, p *pipe, endpoint string, established func()) error {
	remote := c.stream.conn.RemoteAddr().String()
	info, early, err := s.handshake(c)
	if err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			err = ErrHandshakeTimeout
		}
		err = c.cause(err)
		c.close(err)
		err = &PeerError{remote, err}
		s.report(Event{Kind: HandshakeFailed, Endpoint: endpoint, Remote: remote, Err: err})
		return err
	}
	if p == nil {
		p = newPipe(s, endpoint, false)
	}
	peer := &Peer{pipe: p, conn: c, info: info, remote: remote, identity: info.Identity}
	if !s.enter(p) {
		c.close(ErrClosed)
		return ErrClosed
	}
	established()
	p.peer.Store(peer)
	refused := s.pattern.attach(p, peer)
	s.report(Event{Kind: HandshakeSucceeded, Endpoint: endpoint, Remote: remote, Peer: peer})
	if refused != nil {
		s.report(Event{Kind: PeerIgnored, Endpoint: endpoint, Remote: remote, Peer: peer, Err: &PeerError{remote, refused}})
	}

	w := writer{pipe: p, peer: peer, conn: c}
	written := make(chan struct{})
	go func() {
		defer close(written)
		w.run()
	}()
	r := reader{pipe: p, peer: peer, conn: c, ignore: refused != nil}
	err = r.run(early)
	err = c.cause(err)
	c.close(err)
	<-written

	p.peer.Store(nil)
	if refused == nil {
		s.pattern.detach(p, peer)
	}
	if p.lasting && s.pattern.keeps() {
		w.putBack()
	} else {
		w.release()
		p.out.discard()
	}
	if !p.lasting {
		s.leave(p)
	}
	err = &PeerError{remote, err}
	s.report(Event{Kind: Disconnected, Endpoint: endpoint, Remote: remote, Peer: peer, Err: err})
	return err
}

// halfClose ends our direction and gives the peer a moment to end its own, so
// that octets it has not yet received are not destroyed by a reset, which is
// what closing with unread input causes.
func (c *conn) halfClose(ctx context.Context) {
	type closeWriter interface{ CloseWrite() error }
	cw, ok := c.stream.conn.(closeWriter)
	if !ok || cw.CloseWrite() != nil {
		return
	}
	select {
	case <-c.gone:
	case <-ctx.Done():
	case <-time.After(halfCloseWait):
	}
}

// halfCloseWait bounds the wait for the peer's end of file.
const halfCloseWait = 250 * time.Millisecond

// isEOF says that a peer ended its connection in the ordinary way.
func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) }
