package interop

import (
	"bytes"
	"testing"

	"clustermap/sockets"
)

// streamed receives one message of a STREAM and checks its bytes.
func streamed(t *testing.T, s *sockets.Stream, want string) *sockets.Peer {
	t.Helper()
	m, peer, err := s.RecvFrom(timeLimit(t))
	check(t, err)
	if len(m) != 2 || string(m[1]) != want {
		t.Fatalf("received %q, want %q", m, want)
	}
	return peer
}

// TestInteropStream: a STREAM here and one of libzmq exchange bytes, and both are
// notified of the beginning and of the end, with either side closing.
func TestInteropStream(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, who side) {
		s := open(t, sockets.NewStream, sockets.Options{})
		p := linkTo(t, s, who, "STREAM")
		peer := streamed(t, s, "")
		check(t, s.SendTo(timeLimit(t), peer, []byte("hello")))
		got := pythonReceives(p, 2)
		id := got[0][0].Bytes
		if len(id) != 5 || !bytes.Equal(got[1][0].Bytes, id) || got[0][1].Size != 0 || string(got[1][1].Bytes) != "hello" {
			t.Fatalf("libzmq received %q and %q", brief(got[0]), brief(got[1]))
		}
		pythonSays(p, string(id), "back")
		streamed(t, s, "back")
		if who == weBind {
			pythonSays(p, string(id), "") // closes
			streamed(t, s, "")
			return
		}
		check(t, s.SendTo(timeLimit(t), peer)) // closes
		if end := pythonReceives(p, 1)[0]; end[1].Size != 0 {
			t.Errorf("libzmq received %q at the end", brief(end))
		}
	})
}

// TestInteropStreamDealer: a STREAM sees the greeting of libzmq's DEALER as bytes. An
// empty message closes that connection, and the DEALER connects again.
func TestInteropStreamDealer(t *testing.T) {
	t.Parallel()
	s := open(t, sockets.NewStream, sockets.Options{})
	linkTo(t, s, weBind, "DEALER")
	for range 2 {
		peer := streamed(t, s, "")
		m, err := s.Recv(timeLimit(t))
		check(t, err)
		if !bytes.HasPrefix(m[1], []byte{0xff, 0, 0, 0, 0, 0, 0, 0}) {
			t.Fatalf("the greeting begins with %q", m[1])
		}
		check(t, s.SendTo(timeLimit(t), peer))
	}
}
