package link

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// bare hides the descriptor of a connection.
type bare struct{ net.Conn }

// each runs a test with the two ends of a connection, whose descriptor the stream
// uses, and of one that has none.
func each(t *testing.T, test func(t *testing.T, ours *Stream, theirs *net.TCPConn)) {
	for _, name := range []string{"descriptor", "bare"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := connected(t, name == "bare")
			test(t, ours, theirs)
		})
	}
}

// connected returns the two ends of a connection.
func connected(t testing.TB, hidden bool) (ours *Stream, theirs *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	nc, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	other, err := l.Accept()
	must(t, err)
	t.Cleanup(func() {
		nc.Close()
		other.Close()
	})
	ours = new(Stream)
	if hidden {
		must(t, ours.Init(bare{nc}))
	} else {
		must(t, ours.Init(nc))
	}
	return ours, other.(*net.TCPConn)
}

// TestStreamSend: all bytes arrive in order, however many pieces they are in
// and however little the kernel takes at once.
func TestStreamSend(t *testing.T) {
	t.Parallel()
	each(t, send)
}

func send(t *testing.T, ours *Stream, theirs *net.TCPConn) {
	must(t, theirs.SetReadBuffer(64<<10))
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
	n, err := ours.Send(pieces)
	if err != nil || n != int64(len(want)) {
		t.Fatalf("%d of %d bytes, %v", n, len(want), err)
	}
	if !bytes.Equal(<-got, want) {
		t.Error("other bytes arrive")
	}
	if n, err := ours.Send([][]byte{nil, {}}); n != 0 || err != nil {
		t.Errorf("nothing to send: %d, %v", n, err)
	}
	if n, err := ours.Send(nil); n != 0 || err != nil {
		t.Errorf("no piece to send: %d, %v", n, err)
	}
}

// TestStreamSendEnds: a deadline ends a send that the peer does not read, and the
// count says how much the kernel took.
func TestStreamSendEnds(t *testing.T) {
	t.Parallel()
	each(t, sendEnds)
}

func sendEnds(t *testing.T, ours *Stream, theirs *net.TCPConn) {
	type result struct {
		n   int64
		err error
	}
	sent := make(chan result)
	const size = 64 << 20
	go func() {
		n, err := ours.Send([][]byte{make([]byte, size)})
		sent <- result{n, err}
	}()
	must(t, theirs.SetReadDeadline(time.Now().Add(hang)))
	_, err := io.ReadFull(theirs, make([]byte, 1))
	must(t, err) // now it is under way
	must(t, ours.Conn.SetDeadline(time.Unix(1, 0)))
	r := <-sent
	if r.err == nil || r.n == 0 || r.n >= size {
		t.Fatalf("%d bytes, %v", r.n, r.err)
	}
	ours.Conn.Close()
	rest, err := io.Copy(io.Discard, theirs)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if rest+1 != r.n {
		t.Errorf("%d bytes arrive, %d were counted", rest+1, r.n)
	}
	if n, err := ours.Send([][]byte{{1}}); n != 0 || err == nil {
		t.Errorf("after the end: %d, %v", n, err)
	}
}

// taken keeps the bytes that it receives, up to a size.
type taken struct {
	bytes []byte
	want  int
	idle  chan struct{} // gets a token when the peer has nothing more; capacity 1
	buf   [4 << 10]byte
}

func (s *taken) Space() []byte { return s.buf[:] }

func (s *taken) Received(n int) error {
	s.bytes = append(s.bytes, s.buf[:n]...)
	if len(s.bytes) >= s.want {
		return errEnough
	}
	return nil
}

func (s *taken) Idle() {
	select {
	case s.idle <- struct{}{}:
	default:
	}
}

var errEnough = errors.New("enough")

// TestStreamReceive: all bytes are received, in order; the source ends it, and so does
// the end of the connection. The source is told of a pause.
func TestStreamReceive(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, ours *Stream, theirs *net.TCPConn) {
		want := make([]byte, 3<<20+1)
		_, _ = rand.Read(want)
		src := &taken{want: len(want), idle: make(chan struct{}, 1)}
		ended := make(chan error, 1)
		go func() { ended <- ours.Receive(src) }()
		_, err := theirs.Write(want[:1])
		must(t, err)
		<-src.idle // it waits
		_, err = theirs.Write(want[1:])
		must(t, err)
		if err := <-ended; err != errEnough || !bytes.Equal(src.bytes, want) {
			t.Errorf("%v after %d of %d bytes", err, len(src.bytes), len(want))
		}
		must(t, theirs.Close())
		if err := ours.Receive(src); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
	})
}
