package sockets

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

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

// TestStreamSend: all bytes arrive in order, however many pieces they are in
// and however little the kernel takes at once.
func TestStreamSend(t *testing.T) {
	t.Parallel()
	ours, theirs := connected(t)
	must(t, ours.stream.conn.(*net.TCPConn).SetWriteBuffer(64<<10))
	var pieces [][]byte
	add := func(size int) {
		b := make([]byte, size)
		_, _ = rand.Read(b)
		pieces = append(pieces, b)
	}
	for i := range 300 { // more than fit in one vectored write
		add(i)
		add(0)
	}
	add(3 << 20) // more than one write may have
	add(1)
	add(maxWrite)
	add(0)
	want := bytes.Join(pieces, nil)
	got := make(chan []byte)
	go func() {
		b := make([]byte, len(want))
		_, _ = io.ReadFull(theirs, b)
		got <- b
	}()
	n, err := ours.stream.send(pieces)
	if err != nil || n != int64(len(want)) {
		t.Fatalf("%d of %d bytes, %v", n, len(want), err)
	}
	if !bytes.Equal(<-got, want) {
		t.Error("other bytes arrive")
	}
	if n, err := ours.stream.send([][]byte{nil, {}}); n != 0 || err != nil {
		t.Errorf("nothing to send: %d, %v", n, err)
	}
	if n, err := ours.stream.send(nil); n != 0 || err != nil {
		t.Errorf("no piece to send: %d, %v", n, err)
	}
}

// TestStreamSendEnds: close ends a send that the peer does not read, and the
// count says how much the kernel took.
func TestStreamSendEnds(t *testing.T) {
	t.Parallel()
	ours, theirs := connected(t)
	type result struct {
		n   int64
		err error
	}
	sent := make(chan result)
	const size = 64 << 20
	go func() {
		n, err := ours.stream.send([][]byte{make([]byte, size)})
		sent <- result{n, err}
	}()
	must(t, theirs.SetReadDeadline(time.Now().Add(hang)))
	_, err := io.ReadFull(theirs, make([]byte, 1))
	must(t, err) // now it is under way
	ours.close(errors.New("test"))
	r := <-sent
	if r.err == nil || r.n == 0 || r.n >= size {
		t.Fatalf("%d bytes, %v", r.n, r.err)
	}
	ours.finish()
	rest, err := io.Copy(io.Discard, theirs)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if rest+1 != r.n {
		t.Errorf("%d bytes arrive, %d were counted", rest+1, r.n)
	}
	if n, err := ours.stream.send([][]byte{{1}}); n != 0 || err == nil {
		t.Errorf("after the end: %d, %v", n, err)
	}
}
