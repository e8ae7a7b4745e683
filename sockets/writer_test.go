package sockets

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"clustermap/zmtp"
)

// TestWriterRemaining breaks a connection after every byte: of the messages
// taken, those of which no byte was written remain, whole and in order; none
// that was written remains, and at most one is lost.
func TestWriterRemaining(t *testing.T) {
	t.Parallel()
	big := string(bytes.Repeat([]byte("b"), lendFrom))
	messages := [][]byte{wire("1"), wire("2", "", "two"), wire(big), wire(strings.Repeat("l", 300)), wire(""), wire(big), wire("end")}
	pong := zmtp.AppendPong(nil, []byte("context"))
	total := len(pong)
	for _, m := range messages {
		total += len(m)
	}
	l := newLender()
	// Every byte near the borders of messages, and some inside of the large.
	for written := 0; written <= total; written++ {
		if near := borders(len(pong), messages, written); near > 20 && written%97 != 0 {
			continue
		}
		o := newOutbox(hwm{unbounded, unbounded})
		o.pong([]byte("context"))
		for _, m := range messages {
			o.offerWire(nil, m, 1, l)
		}
		w := &writer{pipe: &pipe{}}
		w.pipe.out.init(hwm{unbounded, unbounded})
		o.take(&w.load, nil, nil)
		w.written = int64(written)
		at, want, count := len(pong), []byte(nil), 0
		for _, m := range messages {
			if written <= at {
				want = append(want, m...)
				count++
			}
			at += len(m)
		}
		w.pipe.out.put("queued since")
		w.putBack()
		got, w2 := takenFrom(t, &w.pipe.out)
		if !bytes.Equal(got, append(want, wire("queued since")...)) || w2.queue.messages != count+1 {
			t.Fatalf("broken after %d bytes: %d messages come again, want %d", written, w2.queue.messages-1, count)
		}
	}
	if l.refs.Load() != 0 {
		t.Errorf("%d references are left", l.refs.Load())
	}
}

// borders returns how far the nearest border of a message is.
func borders(at int, messages [][]byte, from int) int {
	nearest := max(at-from, from-at)
	for _, m := range messages {
		at += len(m)
		nearest = min(nearest, max(at-from, from-at))
	}
	return nearest
}

// connected returns the two ends of a connection.
func connected(t testing.TB) (ours *conn, theirs *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	nc, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	other, err := l.Accept()
	must(t, err)
	c, err := newConn(nc)
	must(t, err)
	t.Cleanup(func() {
		c.finish()
		other.Close()
	})
	return c, other.(*net.TCPConn)
}
