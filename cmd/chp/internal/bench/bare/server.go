package bare

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"

	"clustermap/cmd/chp/internal/bench/link"
)

// server gives the updates of all publishers one order.
type server struct {
	mu       sync.Mutex // taken once a buffer
	sequence uint64
	table    *table
	replicas []net.Conn
}

// Server is the role in the middle. Its event Ready names two addresses: for
// publishers, and for replicas.
func Server(p *link.Peer) error {
	s := &server{table: newTable(p.Spec.Keys)}
	publishers, err := listen(p)
	if err != nil {
		return err
	}
	replicas, err := listen(p)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	fail := func(err error) {
		select {
		case failed <- err:
		default: // one is enough
		}
	}
	go accept(p, replicas, func(c net.Conn) {
		s.mu.Lock()
		s.replicas = append(s.replicas, c)
		s.mu.Unlock()
		// From here on nothing is missed: the replica waits to hear that.
		if _, err := c.Write([]byte{0}); err != nil {
			fail(err)
		}
	})
	go accept(p, publishers, func(c net.Conn) {
		if err := s.serve(&reader{in: c, buf: newBuffer(p.Spec)}); err != nil {
			fail(err)
		}
	})
	p.Send(link.Event{Kind: link.Ready, Servers: []string{publishers.Addr().String(), replicas.Addr().String()}})
	select {
	case err := <-failed:
		return err
	case <-p.Context().Done():
		return nil
	}
}

func listen(p *link.Peer) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		closeWith(p.Context(), l)
	}
	return l, err
}

func accept(p *link.Peer, l net.Listener, f func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // closed
		}
		closeWith(p.Context(), c)
		go f(c)
	}
}

// serve takes the updates of one publisher until it leaves.
func (s *server) serve(r *reader) error {
	for {
		b, err := r.read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		n, err := s.publish(b)
		if err != nil {
			return err
		}
		r.used(n)
	}
}

// publish numbers the whole messages in b, stores and forwards them, and returns
// how many bytes they take.
func (s *server) publish(b []byte) (int, error) {
	var messages [batch]message
	s.mu.Lock()
	defer s.mu.Unlock()
	done, n := 0, 0
	for {
		m := &messages[n]
		end, err := m.parse(b, done)
		if err != nil {
			return done, err
		}
		if end > 0 {
			s.sequence++
			binary.BigEndian.PutUint64(m.sequence(b), s.sequence)
			done = end
			n++
		}
		if end == 0 || n == batch {
			s.table.store(b, messages[:n])
			n = 0
		}
		if end == 0 {
			break
		}
	}
	for _, c := range s.replicas {
		if _, err := c.Write(b[:done]); err != nil {
			return done, err
		}
	}
	return done, nil
}
