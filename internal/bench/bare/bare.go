// Package bare is the pipeline beside which a server is measured: publisher, server and
// replica over plain TCP connections, with the same bytes and only the work that a
// replicated map needs. It uses none of the module's packages for that work.
//
// The publisher appends messages to a buffer and writes it when full; the server
// reads a buffer, writes the sequences into it in place, keeps its table, and
// writes the same bytes on to each replica; the replica reads a buffer, checks
// the sequences and keeps its table.
package bare

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"clustermap/internal/bench/link"
	"clustermap/internal/bench/pipeline"
	"clustermap/internal/bench/workload"
)

// Pipeline is the bare pipeline.
var Pipeline = pipeline.Pipeline{Name: "bare", Serve: serve, Publish: publish, Follow: follow}

// BufferSize is the bytes of one read and of one write.
const BufferSize = 256 << 10

// newBuffer returns a buffer that holds a read and the longest message.
func newBuffer(s workload.Spec) []byte {
	return make([]byte, max(BufferSize, 2*len(appendMessage(nil, s.Prefix, make([]byte, s.ValueSize)))+512))
}

// reader reads whole messages.
type reader struct {
	in   io.Reader
	buf  []byte
	held int // bytes in buf that are not yet a whole message
}

// read reads once and returns all that has arrived: whole messages, and at the
// end maybe a part of one. It is lent until the next call; used says how many of
// its bytes were whole messages.
func (r *reader) read() ([]byte, error) {
	if r.held == len(r.buf) {
		return nil, errFrame // no message of the workload is that long
	}
	n, err := r.in.Read(r.buf[r.held:])
	r.held += n
	return r.buf[:r.held], err
}

// used takes whole messages off the beginning.
func (r *reader) used(n int) {
	r.held = copy(r.buf, r.buf[n:r.held])
}

// closeWith closes c when ctx ends, which ends a blocked read or write.
func closeWith(ctx context.Context, c io.Closer) {
	context.AfterFunc(ctx, func() { c.Close() })
}

// Dial connects. The connection is closed when ctx ends.
func Dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	closeWith(ctx, c)
	return c, nil
}

// publisher writes when its buffer holds a write's worth.
type publisher struct {
	to      io.Writer
	buf     []byte
	largest int
}

func publish(p *link.Peer) (pipeline.Publisher, error) {
	c, err := Dial(p.Context(), p.Servers[0])
	return &publisher{to: c, buf: newBuffer(p.Spec)[:0]}, err
}

func (p *publisher) Set(_ int, key string, value []byte) error {
	start := len(p.buf)
	p.buf = appendMessage(p.buf, key, value)
	p.largest = max(p.largest, len(p.buf)-start)
	if len(p.buf)+p.largest <= BufferSize {
		return nil
	}
	return p.Push()
}

func (p *publisher) Push() error {
	_, err := p.to.Write(p.buf)
	p.buf = p.buf[:0]
	return err
}

func (p *publisher) Settle(context.Context) error { return nil } // nothing is answered

// replica keeps a table.
type replica struct {
	table    *Table
	spec     workload.Spec
	in       net.Conn
	receiver *pipeline.Receiver
	sequence uint64
}

func follow(p *link.Peer, r *pipeline.Receiver) (pipeline.Replica, error) {
	c, err := Dial(p.Context(), p.Servers[1])
	if err != nil {
		return nil, err
	}
	// The server's first byte says that it forwards from now on.
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		return nil, err
	}
	return &replica{table: NewTable(p.Spec.Keys), spec: p.Spec, in: c, receiver: r}, nil
}

// errDone ends the loop of a replica that has all updates.
var errDone = errors.New("every update has arrived")

// Run reads until every update has arrived.
func (r *replica) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { r.in.Close() })()
	in := &reader{in: r.in, buf: newBuffer(r.spec)}
	for {
		b, err := in.read()
		if err != nil {
			return err
		}
		n, err := r.apply(b)
		if errors.Is(err, errDone) {
			return nil
		}
		if err != nil {
			return err
		}
		in.used(n)
	}
}

// apply stores the whole messages in b and returns how many bytes they take.
func (r *replica) apply(b []byte) (int, error) {
	var messages [batch]message
	now := r.receiver.Batch()
	for done := 0; ; {
		n, end, err := parseBatch(&messages, b, done)
		if err != nil {
			return done, err
		}
		r.table.store(b, messages[:n])
		for i := range messages[:n] {
			m := &messages[i]
			r.sequence++
			if got := binary.BigEndian.Uint64(m.sequence(b)); got != r.sequence {
				return done, fmt.Errorf("sequence %d, want %d", got, r.sequence)
			}
			if !r.receiver.SeeAt(m.key(b), m.value(b), now) {
				return end, errDone
			}
		}
		if done = end; n < batch {
			return done, nil
		}
	}
}

// Content returns the fingerprint of the table.
func (r *replica) Content() workload.Content { return r.table.Content() }
