package bare

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"

	"clustermap/internal/bench/link"
)

// server gives the updates of all publishers one order.
type server struct {
	mu       sync.Mutex // taken once a buffer
	sequence uint64
	table    *Table
	replicas []net.Conn
}

// serve tells the endpoints for publishers and for replicas.
func serve(p *link.Peer, ready func(servers ...string)) error {
	s := &server{table: NewTable(p.Spec.Keys)}
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
		if err := s.collect(&reader{in: c, buf: newBuffer(p.Spec)}); err != nil {
			fail(err)
		}
	})
	ready(publishers.Addr().String(), replicas.Addr().String())
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

// collect takes the updates of one publisher until it leaves.
func (s *server) collect(r *reader) error {
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
	s.mu.Lock()
	defer s.mu.Unlock()
	var messages [batch]message
	done := 0
	for {
		n, end, err := parseBatch(&messages, b, done)
		if err != nil {
			return done, err
		}
		for i := range messages[:n] {
			s.sequence++
			binary.BigEndian.PutUint64(messages[i].sequence(b), s.sequence)
		}
		s.table.store(b, messages[:n])
		if done = end; n < batch {
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
