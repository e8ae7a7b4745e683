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
	"io"
	"net"

	"clustermap/cmd/chp/internal/bench/workload"
)

// bufferSize is the bytes of one read and of one write.
const bufferSize = 256 << 10

// newBuffer returns a buffer that holds a read and the longest message.
func newBuffer(s workload.Spec) []byte {
	return make([]byte, max(bufferSize, 2*len(appendMessage(nil, s.Prefix, make([]byte, s.ValueSize)))+512))
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

func dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	closeWith(ctx, c)
	return c, nil
}
