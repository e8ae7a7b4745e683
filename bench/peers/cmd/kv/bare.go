package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// bareSystem is the least that the work takes: plain TCP connections with the bytes of
// CHP, buffers of 256 KiB, and a table in the server and in each replica. It is the same
// pipeline as that of chp bench --baseline, except that its table does not read ahead,
// which matters only for maps that exceed the processor's cache.
var bareSystem = system{name: "bare", serve: serveBare, publish: publishBare, follow: followBare}

// bareBuffer is the bytes of one read and of one write.
const bareBuffer = 256 << 10

// The frames of a KVSET and of a KVPUB (RFC 12) in ZMTP 3.1: key, sequence, UUID,
// properties, value.
const (
	frameMore    = 0x01
	sequenceSize = 8
	uuidSize     = 16
)

func appendBare(dst []byte, key string, value []byte) []byte {
	dst = append(append(dst, frameMore, byte(len(key))), key...)
	dst = append(dst, frameMore, sequenceSize, 0, 0, 0, 0, 0, 0, 0, 0)
	dst = append(dst, frameMore, uuidSize, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	dst = append(dst, frameMore, 0)
	return append(append(dst, 0, byte(len(value))), value...)
}

// bareMessage is the parts of a message.
type bareMessage struct{ key, sequence, value []byte }

var errBareFrame = errors.New("malformed frame")

// parse takes the message apart that b begins with. Its size is 0 if it is not all there.
func (m *bareMessage) parse(b []byte) (size int, err error) {
	at := 0
	for i := range 5 {
		if len(b)-at < 2 {
			return 0, nil
		}
		n := int(b[at+1])
		if b[at] != frameMore && (b[at] != 0 || i != 4) {
			return 0, errBareFrame
		}
		if at += 2; len(b)-at < n {
			return 0, nil
		}
		body := b[at : at+n]
		switch i {
		case 0:
			m.key = body
		case 1:
			if n != sequenceSize {
				return 0, errBareFrame
			}
			m.sequence = body
		case 4:
			m.value = body
		}
		at += n
	}
	return at, nil
}

// readBare reads messages until c ends. take is called with whole messages and maybe a
// part of one, and returns how many bytes were whole.
func readBare(c net.Conn, take func(b []byte) (int, error)) error {
	buf := make([]byte, bareBuffer)
	held := 0
	for {
		n, err := c.Read(buf[held:])
		if err != nil {
			return err
		}
		held += n
		used, err := take(buf[:held])
		if err != nil {
			return err
		}
		held = copy(buf, buf[used:held])
	}
}

// dial connects. The connection is closed when ctx ends.
func dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err == nil {
		context.AfterFunc(ctx, func() { c.Close() })
	}
	return c, err
}

// bareServer gives the updates their order.
type bareServer struct {
	mu       sync.Mutex // taken once a buffer
	sequence uint64
	table    *table
	replicas []net.Conn
}

func serveBare(ctx context.Context, ready func(...string)) error {
	s := &bareServer{table: newTable()}
	failed := make(chan error, 1)
	fail := func(err error) {
		select {
		case failed <- err:
		default: // one is enough
		}
	}
	var addresses []string
	for _, serve := range []func(net.Conn) error{s.collect, s.add} {
		l, err := net.Listen("tcp", loopback)
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, func() { l.Close() })
		addresses = append(addresses, l.Addr().String())
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return // closed
				}
				context.AfterFunc(ctx, func() { c.Close() })
				go func() {
					if err := serve(c); err != nil && !errors.Is(err, io.EOF) {
						fail(err)
					}
				}()
			}
		}()
	}
	ready(addresses...)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// loopback is an address of this machine alone, with a port that the system chooses.
const loopback = "127.0.0.1:0"

// add adds a replica. The first byte tells it that it misses nothing from now on.
func (s *bareServer) add(c net.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicas = append(s.replicas, c)
	_, err := c.Write([]byte{0})
	return err
}

// collect takes the updates of a publisher.
func (s *bareServer) collect(c net.Conn) error { return readBare(c, s.publish) }

func (s *bareServer) publish(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := 0
	for {
		var m bareMessage
		size, err := m.parse(b[done:])
		if err != nil {
			return done, err
		}
		if size == 0 {
			break
		}
		s.sequence++
		binary.BigEndian.PutUint64(m.sequence, s.sequence)
		s.table.put(m.key, m.value)
		done += size
	}
	for _, c := range s.replicas {
		if _, err := c.Write(b[:done]); err != nil {
			return done, err
		}
	}
	return done, nil
}

type barePublisher struct {
	c   net.Conn
	buf []byte
}

func publishBare(ctx context.Context, servers []string, _ workload) (publisher, error) {
	c, err := dial(ctx, servers[0])
	return &barePublisher{c: c}, err
}

func (p *barePublisher) set(u update) error {
	start := len(p.buf)
	p.buf = appendBare(p.buf, u.key, u.value)
	if 2*len(p.buf)-start > bareBuffer { // another one would not fit
		return p.push()
	}
	return nil
}

func (p *barePublisher) push() error {
	_, err := p.c.Write(p.buf)
	p.buf = p.buf[:0]
	return err
}

func (p *barePublisher) settle(context.Context) error { return nil } // nothing is answered

type bareReplica struct {
	*table
	c        net.Conn
	see      func(key, value []byte) bool
	sequence uint64
}

func followBare(ctx context.Context, servers []string, see func(key, value []byte) bool) (replica, error) {
	c, err := dial(ctx, servers[1])
	if err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		return nil, err
	}
	return &bareReplica{table: newTable(), c: c, see: see}, nil
}

// errEnough ends a loop whose replica has seen every update.
var errEnough = errors.New("every update has arrived")

func (r *bareReplica) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { r.c.Close() })()
	err := readBare(r.c, r.apply)
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func (r *bareReplica) apply(b []byte) (int, error) {
	done := 0
	for {
		var m bareMessage
		size, err := m.parse(b[done:])
		if size == 0 || err != nil {
			return done, err
		}
		done += size
		if r.sequence++; binary.BigEndian.Uint64(m.sequence) != r.sequence {
			return done, fmt.Errorf("sequence %d, want %d", binary.BigEndian.Uint64(m.sequence), r.sequence)
		}
		r.put(m.key, m.value)
		if !r.see(m.key, m.value) {
			return done, errEnough
		}
	}
}
